"""Simulated labeling: the truth answers instead of a person."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rankingmatch.core.randomness import Purpose, numpy_generator
from rankingmatch.heads.linear import fit_head
from rankingmatch.heads.names import DEFAULT_METHOD
from rankingmatch.heads.smoothing import fit_smoothing
from rankingmatch.labeling.random_checks import CHECK_EVERY, draw_checks, error_interval
from rankingmatch.labeling.selection import NOT_SELECTABLE, UNLABELED, next_images

__all__ = ["ORDERS", "SIZES", "AuditLook", "Pool", "Simulation", "interval_counts", "make_pool", "simulate"]

SIZES = (10, 20, 40, 80, 100, 200)  # labels for training
ORDERS = ("ours", "random")
FIRST = 10  # labels before the first head
AT_ONCE = 8  # pictures that a person is given


@dataclass(frozen=True)
class Pool:
    """A folder to be labeled, with the truth, and test pictures.

    Attributes
    ----------
    title : str
        The name in tables.
    classes : int
        The number of classes.
    features, test_features : numpy.ndarray
        Smoothed features of shapes (n, d) and (m, d).
    truth, test_truth : numpy.ndarray
        Classes of shapes (n,) and (m,).
    """

    title: str
    classes: int
    features: np.ndarray
    truth: np.ndarray
    test_features: np.ndarray
    test_truth: np.ndarray


@dataclass(frozen=True)
class AuditLook:
    """What the audit shows at some time, and the truth.

    Attributes
    ----------
    low, high : float
        The interval of the error, in percent.
    error : float
        The error of the same head on the test pictures and all pictures that are reserved for the audit, in percent.
    """

    low: float
    high: float
    error: float

    @property
    def contains_truth(self) -> bool:
        """Whether the interval contains the true error."""
        return self.low <= self.error <= self.high


@dataclass(frozen=True)
class Simulation:
    """A simulated labeling of a pool.

    Attributes
    ----------
    order : str
        "ours" or "random".
    seed : int
        Its seed.
    sizes : tuple of int
        Numbers of labels for training at which a head was evaluated.
    errors : tuple of float
        Test errors at these sizes, in percent.
    looks : tuple of AuditLook
        The audits at these sizes, with one audited picture for four labels.
    """

    order: str
    seed: int
    sizes: tuple[int, ...]
    errors: tuple[float, ...]
    looks: tuple[AuditLook, ...]

    @property
    def best_look(self) -> AuditLook:
        """The look with the lowest upper limit: where a person stops who waits for a good result."""
        return min(self.looks, key=lambda look: look.high)


def make_pool(
    title: str, classes: int, features: np.ndarray, truth: np.ndarray, test_features: np.ndarray, test_truth: np.ndarray
) -> Pool:
    """Smooth the features of a folder and of test pictures; only the folder's pictures are used as neighbors.

    Parameters
    ----------
    title : str
        The name in tables.
    classes : int
        The number of classes.
    features, test_features : numpy.ndarray
        Features of shapes (n, d) and (m, d).
    truth, test_truth : numpy.ndarray
        Classes of shapes (n,) and (m,).

    Returns
    -------
    Pool
        The folder, ready to be labeled.
    """
    smoothing = fit_smoothing(features, seed=0)
    return Pool(title, classes, smoothing.apply(features), truth, smoothing.apply(test_features), test_truth)


def simulate(
    pool: Pool, order: str, seed: int, sizes: Sequence[int] | None = None, method: str = DEFAULT_METHOD
) -> Simulation:
    """Label a pool in an order, and evaluate a head at some numbers of labels.

    Parameters
    ----------
    pool : Pool
        What is labeled.
    order : str
        "ours" or "random".
    seed : int
        The seed of the order and of the audit.
    sizes : sequence of int
        Ascending numbers of labels, by default `SIZES`; those that the pool does not have without the audit are left
        out.
    method : str
        What trains the heads, as in `fit_head`.

    Returns
    -------
    Simulation
        Errors and audits.
    """
    audit = draw_checks(len(pool.truth), seed)
    sizes = tuple(size for size in sizes or SIZES if size <= len(pool.truth) - len(audit))
    chosen = _ours(pool, audit, sizes[-1], seed, method) if order == "ours" else _random(pool, audit, sizes[-1], seed)
    errors, looks = [], []
    for size in sizes:
        labels = np.full(len(pool.truth), UNLABELED)
        labels[audit] = NOT_SELECTABLE
        labels[chosen[:size]] = pool.truth[chosen[:size]]
        head = fit_head(pool.features, labels, pool.classes, seed, method)
        test_wrong = head.probabilities(pool.test_features).argmax(1) != pool.test_truth
        errors.append(100 * float(test_wrong.mean()))
        reserved_wrong = head.probabilities(pool.features[audit]).argmax(1) != pool.truth[audit]
        looks.append(_look(reserved_wrong, test_wrong, size // (CHECK_EVERY - 1)))
    return Simulation(order, seed, sizes, tuple(errors), tuple(looks))


def _look(reserved_wrong: np.ndarray, test_wrong: np.ndarray, audited: int) -> AuditLook:
    """The audit of the first reserved pictures, and the error on all that the order could not choose."""
    wrong = reserved_wrong[:audited]
    error = 100 * float(np.concatenate([reserved_wrong, test_wrong]).mean())
    return AuditLook(*error_interval(int(wrong.sum()), len(wrong)), error)


def _random(pool: Pool, audit: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Pictures in random order, without those of the audit."""
    others = np.setdiff1d(np.arange(len(pool.truth)), audit)
    return numpy_generator(seed, Purpose.SELECTION).permutation(others)[:count]


def _ours(pool: Pool, audit: np.ndarray, count: int, seed: int, method: str) -> np.ndarray:
    """Pictures in the order of `next_images`, with a new head after each few labels."""
    labels = np.full(len(pool.truth), UNLABELED)
    labels[audit] = NOT_SELECTABLE
    chosen: list[int] = []
    while len(chosen) < count:
        two_classes = len(np.unique(pool.truth[chosen])) > 1 and len(chosen) >= FIRST
        probabilities = None
        if two_classes:
            probabilities = fit_head(pool.features, labels, pool.classes, seed, method).probabilities(pool.features)
        wanted = min(AT_ONCE if len(chosen) >= FIRST else FIRST, count - len(chosen))
        numbers = [number for number, _ in next_images(pool.features, labels, probabilities, wanted, seed)]
        labels[numbers] = pool.truth[numbers]
        chosen += numbers
    return np.array(chosen)


def interval_counts(simulations: Sequence[Simulation]) -> list[int]:
    """Count, for each number of labels, the simulations whose audit interval contains the true error.

    Parameters
    ----------
    simulations : sequence of Simulation
        Simulations with the same sizes.

    Returns
    -------
    list of int
        A count for each size.
    """
    columns = zip(*(one.looks for one in simulations), strict=True)
    return [sum(look.contains_truth for look in looks) for looks in columns]
