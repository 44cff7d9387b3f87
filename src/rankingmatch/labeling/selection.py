"""Which image to label next, and who gets it.

Images are chosen greedily, such that every image has a chosen one that resembles it [1]: with a kernel k on unit
features, the next image is the one with the largest ∑ w(y) max(k(x, y) − c(y), 0), where c(y) is the largest kernel
value of y with an image that is labeled already. Before there is a model, w = 1. With a model, w is larger for
images that it is unsure about [2].

1. Bae et al., Generalized Coverage for More Robust Low-Budget Active Learning, 2024.
2. Bae et al., Uncertainty Herding: One Active Learning Method for All Label Budgets, 2025.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, islice, repeat

import numpy as np

from rankingmatch.core.randomness import Purpose, numpy_generator
from rankingmatch.heads.smoothing import known_rows, unit_features
from rankingmatch.labeling.random_checks import CHECK_EVERY

UNLABELED, NOT_SELECTABLE = -1, -2
SHARPNESS = 3.0  # β of the kernel
DOUBT = 4  # power of the uncertainty, which makes up for a head that is less sure than it is right
EXAMINED = 4000  # images that coverage is computed with; a random part of a larger folder
RESERVED = 300.0  # seconds for which an image belongs to the client that got it
KEPT = 16  # images of a client that it may have loaded already when the order changes

# Why an image is shown next, for people.
TYPICAL, UNSURE, RARE = "typical of the folder", "the model is unsure", "few labels of this class yet"
CHECK, ORDER, UNDONE = "random check", "random order", "undone"


def next_images(
    features: np.ndarray, labels: np.ndarray, probabilities: np.ndarray | None, count: int, seed: int
) -> list[tuple[int, str]]:
    """Choose the images to label next, most useful first; fewer than `count` if fewer are selectable.

    Features (n, d) are best those of `smooth_features`; a row of zeros is an image whose features are not known yet,
    which is not chosen. Labels (n,) are a class, −1 without a label, or −2 for images that must not be chosen (random
    checks, skipped, of no class). `probabilities` (n, classes) are None without a model.
    """
    labels = np.asarray(labels)
    known = np.flatnonzero(known_rows(features))
    selectable = known[labels[known] == UNLABELED]
    count = min(count, len(selectable))
    if count == 0:
        return []
    generator = numpy_generator(seed, Purpose.SELECTION, int((labels >= 0).sum()))
    candidates = _sample(selectable, max(EXAMINED, count), generator)
    reference = _sample(known, EXAMINED, generator)
    mean = np.asarray(features[reference], np.float32).mean(0)
    target = unit_features(features[reference], mean)
    kernel = _kernel(unit_features(features[candidates], mean), target)
    labeled = unit_features(features[labels >= 0], mean)
    covered = np.zeros(len(target), np.float32)
    for start in range(0, len(labeled), EXAMINED):
        covered = np.maximum(covered, _kernel(target, labeled[start : start + EXAMINED]).max(1))
    weights = 1.0 if probabilities is None else _uncertainty(probabilities[reference]) ** DOUBT
    chosen = candidates[_greedy(kernel, covered, weights, count)]
    return list(zip(chosen.tolist(), _reasons(chosen, labels, probabilities), strict=True))


def _sample(numbers: np.ndarray, most: int, generator: np.random.Generator) -> np.ndarray:
    """All numbers, or a random part if there are too many."""
    return numbers if len(numbers) <= most else np.sort(generator.choice(numbers, most, replace=False))


def _kernel(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The Gaussian kernel exp(−β‖x − y‖² / 2) = exp(β(xᵀy − 1)) of unit vectors, (n, m)."""
    similarity = left @ right.T
    similarity -= 1
    similarity *= SHARPNESS
    return np.asarray(np.exp(similarity, out=similarity))


def _uncertainty(probabilities: np.ndarray) -> np.ndarray:
    """One minus the difference of the two largest probabilities."""
    largest = np.sort(probabilities, axis=1)[:, -2:]
    return np.asarray(1 - (largest[:, -1] - largest[:, 0]))


def _greedy(kernel: np.ndarray, covered: np.ndarray, weights: np.ndarray | float, count: int) -> np.ndarray:
    """Rows of a kernel (candidates, targets), each with the largest gain of weighted coverage after those before it.

    Gains only shrink as more is covered, so a row whose renewed gain is still the largest needs no comparison.
    """
    gains = np.array([float((weights * np.maximum(row - covered, 0)).sum()) for row in kernel])
    chosen = []
    for _ in range(count):
        while True:
            best = int(np.argmax(gains))
            renewed = float((weights * np.maximum(kernel[best] - covered, 0)).sum())
            if renewed >= gains[best]:
                break
            gains[best] = renewed
        chosen.append(best)
        covered = np.maximum(covered, kernel[best])
        gains[best] = -1
    return np.array(chosen, np.int64)


def _reasons(chosen: np.ndarray, labels: np.ndarray, probabilities: np.ndarray | None) -> list[str]:
    if probabilities is None:
        return [TYPICAL] * len(chosen)
    counts = np.bincount(labels[labels >= 0], minlength=probabilities.shape[1])
    rare = counts[probabilities[chosen].argmax(1)] <= 0.5 * counts[counts > 0].mean()
    unsure = _uncertainty(probabilities[chosen]) > np.median(_uncertainty(probabilities))
    return [RARE if few else UNSURE if doubt else TYPICAL for few, doubt in zip(rare, unsure, strict=True)]


class ImageQueue:
    """Hands out images, each with a reason, so that no two people are given the same one.

    `order` has all images, in the order in which they come as long as nothing better is known; random checks come in
    their own order, at their turns.
    """

    def __init__(self, order: Iterable[int], checks: Iterable[int]) -> None:
        self.checks = dict.fromkeys(checks)
        self._order = [number for number in order if number not in self.checks]
        self._ranking: list[tuple[int, str]] = []
        self._handed_out = 0
        self._queues: dict[str, list[tuple[int, str]]] = {}
        self._asked: dict[str, float] = {}  # when each client asked last

    def preview(self) -> Iterator[int]:
        """All images in the order in which they come without a better one."""
        checks = iter(self.checks)
        for number, image in enumerate(self._order, 1):
            yield image
            if number % (CHECK_EVERY - 1) == 0:
                yield from islice(checks, 1)
        yield from checks

    def rank(self, ranking: Iterable[tuple[int, str]]) -> None:
        """Use a better order from now on."""
        self._ranking = [(number, why) for number, why in ranking if number not in self.checks]
        self._queues = {client: queue[:KEPT] for client, queue in self._queues.items()}

    def take(
        self, client: str, count: int, is_open: Callable[[int], bool], now: float, without: Collection[int] = ()
    ) -> list[tuple[int, str]]:
        """The next `count` images of a client that are still to be labeled, `without` those it has already."""
        self._asked[client] = now
        self._asked = {one: time for one, time in self._asked.items() if now - time <= RESERVED}
        self._queues = {one: self._queues.get(one, []) for one in self._asked}
        self._queues[client] = queue = [turn for turn in self._queues[client] if is_open(turn[0])]
        found = [turn for turn in queue if turn[0] not in without]
        taken = {number for one in self._queues.values() for number, _ in one}.union(without)
        while len(found) < count and (turn := self._choose(lambda n: n not in taken and is_open(n))) is not None:
            taken.add(turn[0])
            queue.append(turn)
            found.append(turn)
        return found[:count]

    def put_back(self, client: str, number: int, now: float) -> None:
        """Give a client an image again whose label was undone, before all others."""
        others = [turn for turn in self._queues.get(client, ()) if turn[0] != number]
        self._queues[client], self._asked[client] = [(number, UNDONE), *others], now

    def _choose(self, is_free: Callable[[int], bool]) -> tuple[int, str] | None:
        checks = zip(self.checks, repeat(CHECK))  # the folder may be large: nothing is listed
        others = chain(self._ranking, zip(self._order, repeat(ORDER)))
        is_check = self._handed_out % CHECK_EVERY == CHECK_EVERY - 1
        in_turn = chain(checks, others) if is_check else chain(others, checks)
        turn = next((one for one in in_turn if is_free(one[0])), None)
        self._handed_out += turn is not None
        return turn
