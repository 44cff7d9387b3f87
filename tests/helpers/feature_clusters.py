"""Features of a few classes that overlap."""

import numpy as np


def clusters(each: int = 30, classes: int = 4, dimensions: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """Features (n, dimensions) around the center of each class, and the classes (n,)."""
    rng = np.random.default_rng(0)
    truth = np.tile(np.arange(classes), each)
    centers = 1.2 * rng.standard_normal((classes, dimensions))
    return (centers[truth] + rng.standard_normal((len(truth), dimensions))).astype(np.float32), truth
