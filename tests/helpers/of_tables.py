"""Scikit-learn's checks give estimators tables: here each row is an image one pixel high."""

from typing import Any, Self

import numpy as np

from rankingmatch import RankingMatchClassifier


class OfTables(RankingMatchClassifier):
    """The estimator behind a conversion of tables; whatever is no table of numbers goes to it as it is."""

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        return super().fit(_images(X), y)

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        return super().predict_proba(_images(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = True, False
        return tags


def _images(table: Any) -> Any:
    if hasattr(table, "toarray"):
        return table
    values = np.asarray(table)
    if values.ndim != 2 or values.dtype.kind == "c":
        return values
    if values.dtype == object:
        values = values.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return (0.5 + 0.5 * values / (4 + abs(values)))[:, None, :]  # into 0…1; infinity becomes NaN
