"""Simulated labeling of a dataset or folder whose labels are known: the truth answers instead of a person."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rankingmatch.bench.results import read_measurement
from rankingmatch.bench.tables import Figure, Table, TableRow
from rankingmatch.core.errors import DataError, RunError, first_line
from rankingmatch.core.randomness import Purpose, numpy_generator
from rankingmatch.core.untrusted import typed
from rankingmatch.data import find_source
from rankingmatch.heads import HEAD_METHOD
from rankingmatch.heads.linear import fit_head
from rankingmatch.heads.smoothing import fit_smoothing
from rankingmatch.labeling.features import feature_function
from rankingmatch.labeling.random_checks import CHECK_EVERY, draw_checks, error_interval
from rankingmatch.labeling.selection import NOT_SELECTABLE, UNLABELED, next_images
from rankingmatch.runs.photographs import default_network

ORDERS = ("ours", "random")
SIZES = (10, 20, 40, 80, 100, 200)  # labels for training
FIRST = 10  # labels before the first head
AT_ONCE = 8  # images that a person is given
SMALLEST = 64  # the side in pixels below which images are not photographs for the network
BATCH = 64  # images whose features are computed at a time


@dataclass(frozen=True)
class Pool:
    """A folder to be labeled, with the truth, and test images."""

    title: str
    classes: int
    features: np.ndarray  # (n, d), smoothed
    truth: np.ndarray  # (n,)
    test_features: np.ndarray  # (m, d), smoothed with the neighbors in the folder
    test_truth: np.ndarray  # (m,)


def known_pool(data: str, data_dir: Path | None = None) -> Pool:
    """The training images of a dataset or folder that have labels, and its test images; DataError without them.

    The features of photographs come from a pretrained network; those of small images are their pixels.
    """
    source = find_source(data)
    small = source.side < SMALLEST or source.shape[2] != 3
    dataset = source.load(data_dir, None if small else default_network()[1], crop=not small)
    if dataset.test is None:
        raise DataError(f"{source.title} has no test images to measure the error with; use another folder or dataset")
    train = dataset.train.take(np.flatnonzero(dataset.train.labels >= 0))

    def pixels(images: np.ndarray) -> np.ndarray:
        return images.reshape(len(images), -1).astype(np.float32)

    compute = pixels if small else feature_function(len(train) + len(dataset.test))
    features, test_features = (
        np.concatenate([compute(images[start : start + BATCH]) for start in range(0, len(images), BATCH)])
        for images in (train.images, dataset.test.images)
    )
    return make_pool(source.title, len(dataset.classes), features, train.labels, test_features, dataset.test.labels)


def make_pool(
    title: str, classes: int, features: np.ndarray, truth: np.ndarray, test_features: np.ndarray, test_truth: np.ndarray
) -> Pool:
    """Smooth the features of a folder and of test images; only the folder's images are used as neighbors."""
    smoothing = fit_smoothing(features, seed=0)
    return Pool(title, classes, smoothing.apply(features), truth, smoothing.apply(test_features), test_truth)


@dataclass(frozen=True)
class Look:
    """What the random checks show at some time, and the truth, in percent."""

    low: float  # the interval of the error
    high: float
    error: float  # of the same head on the test images and all images that are reserved for random checks

    @property
    def contains_truth(self) -> bool:
        """Whether the interval contains the true error."""
        return self.low <= self.error <= self.high


@dataclass(frozen=True)
class Simulation:
    """A simulated labeling of a pool."""

    order: str  # "ours" or "random"
    seed: int
    sizes: tuple[int, ...]  # numbers of labels for training at which a head was evaluated
    errors: tuple[float, ...]  # on test images at these sizes, in percent
    looks: tuple[Look, ...]  # at these sizes, with one random check for four labels


def simulate(
    pool: Pool, order: str, seed: int, sizes: Sequence[int] | None = None, method: str = HEAD_METHOD
) -> Simulation:
    """Label a pool in an order, and evaluate a head at some numbers of labels.

    `sizes` are ascending, by default `SIZES`; those that the pool does not have without the random checks are left
    out. `method` trains the heads.
    """
    reserved = draw_checks(len(pool.truth), seed)
    sizes = tuple(size for size in sizes or SIZES if size <= len(pool.truth) - len(reserved))
    chosen = _choose(pool, order, reserved, sizes[-1], seed, method)
    errors, looks = [], []
    for size in sizes:
        labels = np.full(len(pool.truth), UNLABELED)
        labels[reserved] = NOT_SELECTABLE
        labels[chosen[:size]] = pool.truth[chosen[:size]]
        head = fit_head(pool.features, labels, pool.classes, seed, method)
        test_wrong = head.probabilities(pool.test_features).argmax(1) != pool.test_truth
        errors.append(100 * float(test_wrong.mean()))
        reserved_wrong = head.probabilities(pool.features[reserved]).argmax(1) != pool.truth[reserved]
        checked = reserved_wrong[: size // (CHECK_EVERY - 1)]
        error = 100 * float(np.concatenate([reserved_wrong, test_wrong]).mean())
        looks.append(Look(*error_interval(int(checked.sum()), len(checked)), error))
    return Simulation(order, seed, sizes, tuple(errors), tuple(looks))


def _choose(pool: Pool, order: str, reserved: np.ndarray, count: int, seed: int, method: str) -> np.ndarray:
    """Images without the random checks: at random, or in the order of `next_images` with a new head after a few."""
    if order == "random":
        others = np.setdiff1d(np.arange(len(pool.truth)), reserved)
        return numpy_generator(seed, Purpose.SELECTION).permutation(others)[:count]
    labels = np.full(len(pool.truth), UNLABELED)
    labels[reserved] = NOT_SELECTABLE
    chosen: list[int] = []
    while len(chosen) < count:
        probabilities = None
        if len(chosen) >= FIRST and len(np.unique(pool.truth[chosen])) > 1:
            probabilities = fit_head(pool.features, labels, pool.classes, seed, method).probabilities(pool.features)
        wanted = min(AT_ONCE if len(chosen) >= FIRST else FIRST, count - len(chosen))
        numbers = [number for number, _ in next_images(pool.features, labels, probabilities, wanted, seed)]
        labels[numbers] = pool.truth[numbers]
        chosen += numbers
    return np.array(chosen)


def read_labelings(path: Path) -> dict[tuple[int, str], Simulation]:
    """The labelings that a file keeps, by seed and order."""
    names = Simulation.__dataclass_fields__
    try:
        rows = [{name: row[name] for name in names} for row in read_measurement(path).rows]
        return {(one.seed, one.order): one for one in (typed(Simulation, row) for row in rows)}
    except (ValueError, KeyError) as error:
        raise RunError(f"{path} cannot be read: {first_line(error)}; restore it, or delete it") from error


def error_table(title: str, simulations: Sequence[Simulation]) -> Table:
    """Test errors: a row for each order, a column for each number of labels."""
    sizes, rows = simulations[0].sizes, []
    for order in dict.fromkeys(one.order for one in simulations):
        errors = zip(*(one.errors for one in simulations if one.order == order), strict=True)
        rows.append(TableRow(order, tuple(map(Figure, errors)), ("",) * len(sizes)))
    return Table(title, "test error %", tuple(f"{size} labels" for size in sizes), tuple(rows))


def interval_counts(simulations: Sequence[Simulation]) -> dict[str, int]:
    """In how many simulations the interval contains the true error: at each number of labels, and where it looks best.

    All have the same sizes.
    """
    columns = zip(*(one.looks for one in simulations), strict=True)
    counts = {
        f"{size} labels": sum(look.contains_truth for look in looks)
        for size, looks in zip(simulations[0].sizes, columns, strict=True)
    }
    # A person who waits for a good result stops at the lowest upper limit.
    best = [min(one.looks, key=lambda look: look.high) for one in simulations]
    return {**counts, "where the interval looks best": sum(look.contains_truth for look in best)}
