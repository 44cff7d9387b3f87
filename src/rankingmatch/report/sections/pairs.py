"""Pairs: images of one class can have similar outputs and yet different representations (the paper's Figure 4)."""

from typing import TypedDict

import numpy as np

from rankingmatch.report.run_data import Predictions
from rankingmatch.report.sampling import sample
from rankingmatch.report.section import ReportInput, Section
from rankingmatch.report.thumbnails import Sprite

BINS = 60
MOST_IMAGES = 2000  # whose pairs are compared


class SimilarityHistogram(TypedDict):
    """Cosine similarities in equal bins over [-1, 1], in percent of the pairs; means are None without pairs."""

    same_class: list[float]
    other_class: list[float]
    same_class_mean: float | None
    other_class_mean: float | None


class ExamplePair(TypedDict):
    """Two images of one class, and how similar their outputs and their representations are."""

    label: int
    rows: tuple[int, int]
    thumbnails: tuple[int, int]
    outputs: float
    representations: float


class PairsOfRun(TypedDict):
    """What is shown of one run."""

    run: int
    subset: str
    sprite: str
    images: int
    total: int  # images with a known label, of which `images` are a sample
    examples: list[ExamplePair]
    outputs: SimilarityHistogram
    representations: SimilarityHistogram


class PairsData(TypedDict):
    """What pairs.js draws; without runs that have no labels or no representations."""

    runs: list[PairsOfRun]


def pairs_data(report: ReportInput) -> PairsData:
    """Similarities within and between classes of each detailed run."""
    runs = []
    for index, run in report.detailed_runs():
        if run.evaluated is not None:
            shown = pairs_of_run(index, run.evaluated, *report.sprite(run, run.evaluated))
            runs += [shown] if shown else []
    return {"runs": runs}


def pairs_of_run(index: int, predictions: Predictions, key: str, sprite: Sprite) -> PairsOfRun | None:
    """What is shown of one run; None without labels or without representations."""
    known = predictions.take(np.flatnonzero(predictions.known))
    if known.features is None or len(known) < 2:
        return None
    chosen = known.take(sample(len(known), MOST_IMAGES))
    assert chosen.features is not None
    outputs, representations = cosine_similarities(chosen.logits), cosine_similarities(chosen.features)
    return {
        "run": index,
        "subset": predictions.subset,
        "sprite": key,
        "images": len(chosen),
        "total": len(known),
        "examples": example_pairs(chosen, outputs, representations, sprite),
        "outputs": histogram(outputs, chosen.truth),
        "representations": histogram(representations, chosen.truth),
    }


def cosine_similarities(vectors: np.ndarray) -> np.ndarray:
    """(n, n) cosine similarities of (n, d) vectors."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.maximum(lengths, 1e-12)
    return np.asarray(np.clip(unit @ unit.T, -1, 1))


def histogram(similarities: np.ndarray, truth: np.ndarray) -> SimilarityHistogram:
    """Histograms of the pairs of one class and of the pairs of two classes."""
    first, second = np.triu_indices(len(truth), 1)
    values, same = similarities[first, second], truth[first] == truth[second]
    return {
        "same_class": _shares(values[same]),
        "other_class": _shares(values[~same]),
        "same_class_mean": _mean(values[same]),
        "other_class_mean": _mean(values[~same]),
    }


def _shares(values: np.ndarray) -> list[float]:
    counts = np.histogram(values, BINS, (-1, 1))[0]
    shares: list[float] = np.round(100 * counts / max(1, len(values)), 4).tolist()
    return shares


def _mean(values: np.ndarray) -> float | None:
    return round(float(values.mean()), 4) if len(values) else None


def example_pairs(
    chosen: Predictions, outputs: np.ndarray, representations: np.ndarray, sprite: Sprite
) -> list[ExamplePair]:
    """From each class, the correctly predicted pair with the widest gap between the similarities."""
    examples: list[ExamplePair] = []
    for label in np.unique(chosen.truth):
        pair = widest_gap(outputs, representations, np.flatnonzero((chosen.truth == label) & ~chosen.wrong))
        if pair is not None:
            first, second = pair
            rows = (int(chosen.rows[first]), int(chosen.rows[second]))
            examples.append(
                {
                    "label": int(label),
                    "rows": rows,
                    "thumbnails": (
                        sprite.add(rows[0], chosen.images[first]),
                        sprite.add(rows[1], chosen.images[second]),
                    ),
                    "outputs": round(float(outputs[pair]), 4),
                    "representations": round(float(representations[pair]), 4),
                }
            )
    return examples


def widest_gap(outputs: np.ndarray, representations: np.ndarray, indices: np.ndarray) -> tuple[int, int] | None:
    """The pair of `indices` with the largest difference of output and representation similarity; None if no pair."""
    if len(indices) < 2:
        return None
    gap = (outputs - representations)[np.ix_(indices, indices)]
    np.fill_diagonal(gap, -np.inf)
    first, second = np.unravel_index(int(gap.argmax()), gap.shape)
    return int(indices[first]), int(indices[second])


SECTION = Section("pairs", "Pairs", pairs_data)
