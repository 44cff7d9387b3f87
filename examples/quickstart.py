"""40 labeled and 1,397 unlabeled images of digits: fit, score, save."""

import sys

import numpy as np
from sklearn.datasets import load_digits

from rankingmatch import RankingMatchClassifier

steps = int(sys.argv[1]) if len(sys.argv) > 1 else None  # None: chosen for the dataset, about two minutes

digits = load_digits()
images = np.rint(digits.images * (255 / 16)).astype(np.uint8)  # (1797, 8, 8), 0…255
labels = np.where(np.arange(1437) < 40, digits.target[:1437], -1)  # −1: unlabeled

classifier = RankingMatchClassifier(steps=steps, random_state=0, verbose=1).fit(images[:1437], labels)
print(f"test error {100 * (1 - classifier.score(images[1437:], digits.target[1437:])):.1f}%")
print("predicted labels of unlabeled images:", classifier.transduction_[40:50])
classifier.save("digits.safetensors")  # read it with RankingMatchClassifier.load; no pickle
