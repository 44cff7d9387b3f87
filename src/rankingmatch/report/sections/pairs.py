"""Pairs: images of one class can have similar outputs and yet different representations (the paper's Figure 4)."""

from typing import TypedDict

import numpy as np

from rankingmatch.report.run_data import Predictions, sample
from rankingmatch.report.sections import OfRun, ReportInput, Section, Sprite

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


class PairsOfRun(OfRun):
    """What is shown of one run."""

    images: int
    total: int  # images with a known label, of which `images` are a sample
    examples: list[ExamplePair]
    outputs: SimilarityHistogram
    representations: SimilarityHistogram


def pairs_data(report: ReportInput) -> list[PairsOfRun]:
    """Similarities within and between classes of each detailed run that has labels and representations."""
    runs: list[PairsOfRun] = []
    for of_run, predictions, sprite in report.predictions():
        known = predictions.known
        chosen = known.take(sample(len(known), MOST_IMAGES))
        if chosen.features is None or len(chosen) < 2:
            continue
        outputs, representations = cosine_similarities(chosen.logits), cosine_similarities(chosen.features)
        runs.append(
            {
                **of_run,
                "images": len(chosen),
                "total": len(known),
                "examples": example_pairs(chosen, outputs, representations, sprite),
                "outputs": histogram(outputs, chosen.truth),
                "representations": histogram(representations, chosen.truth),
            }
        )
    return runs


def cosine_similarities(vectors: np.ndarray) -> np.ndarray:
    """(n, n) cosine similarities of (n, d) vectors."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.maximum(lengths, 1e-12)
    return np.asarray(np.clip(unit @ unit.T, -1, 1))


def histogram(similarities: np.ndarray, truth: np.ndarray) -> SimilarityHistogram:
    """Histograms of the pairs of one class and of the pairs of two classes."""
    first, second = np.triu_indices(len(truth), 1)
    values, same = similarities[first, second], truth[first] == truth[second]

    def shares(part: np.ndarray) -> list[float]:
        counts = np.histogram(part, BINS, (-1, 1))[0]
        return list(np.round(100 * counts / max(1, len(part)), 4).tolist())

    return {
        "same_class": shares(values[same]),
        "other_class": shares(values[~same]),
        "same_class_mean": round(float(values[same].mean()), 4) if same.any() else None,
        "other_class_mean": round(float(values[~same].mean()), 4) if not same.all() else None,
    }


def example_pairs(
    chosen: Predictions, outputs: np.ndarray, representations: np.ndarray, sprite: Sprite
) -> list[ExamplePair]:
    """From each class, the correctly predicted pair with the widest gap between the similarities."""
    examples: list[ExamplePair] = []
    gap, correct = outputs - representations, ~chosen.wrong
    np.fill_diagonal(gap, -np.inf)
    for label in np.unique(chosen.truth):
        inside = np.flatnonzero((chosen.truth == label) & correct)
        if len(inside) < 2:
            continue
        of_class = gap[np.ix_(inside, inside)]
        first, second = inside[list(np.unravel_index(of_class.argmax(), of_class.shape))].tolist()
        pair = [first, second]
        rows, thumbnails = chosen.rows[pair].tolist(), sprite.add(chosen.rows[pair], chosen.images[pair])
        examples.append(
            {
                "label": int(label),
                "rows": (rows[0], rows[1]),
                "thumbnails": (thumbnails[0], thumbnails[1]),
                "outputs": round(float(outputs[first, second]), 4),
                "representations": round(float(representations[first, second]), 4),
            }
        )
    return examples


SECTION = Section("pairs", "Pairs", pairs_data)
