"""Grid search over methods and thresholds with scikit-learn, cross-validated on the labeled images."""

import sys

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV

from rankingmatch import RankingMatchClassifier

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 300  # short: eight fits, and one of the best setting

digits = load_digits()
images = np.rint(digits.images * (255 / 16)).astype(np.uint8)
labels = np.where(np.arange(len(images)) < 100, digits.target, -1)[:800]  # −1: unlabeled, but used for training

grid = {
    "method": ["rankingmatch-bm", "fixmatch-ra"],
    "hyperparameters": [{"threshold": 0.95}, {"threshold": 0.8}],
}
search = GridSearchCV(RankingMatchClassifier(steps=steps, random_state=0), grid, cv=2)
search.fit(images[:800], labels)

for settings, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True):
    print(f"{settings['method']}, {settings['hyperparameters']}: {100 * (1 - score):.1f}% error")
print(f"best: {search.best_params_}")
print(f"on 997 other digits: {100 * (1 - search.score(images[800:], digits.target[800:])):.1f}% error")
