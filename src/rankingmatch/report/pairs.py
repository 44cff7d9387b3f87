"""The paper's motivation (Figure 4): images of a class may have alike outputs and yet unlike representations."""

from typing import Any

import numpy as np

from rankingmatch.report.maps import sample
from rankingmatch.report.sheet import Sheet
from rankingmatch.report.subject import Outputs

BINS = 60
EXAMPLES = 8  # classes of which pairs are shown
MOST = 2000  # images whose pairs are looked at


def cosine_similarities(vectors: np.ndarray) -> np.ndarray:
    """(n, n) cosine similarities of (n, d) vectors."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.maximum(lengths, 1e-12)
    return np.asarray(np.clip(unit @ unit.T, -1, 1))


def distribution(similarities: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """Histograms over [-1, 1] of the pairs of a class and of pairs of two classes: shares in percent, and means."""
    first, second = np.triu_indices(len(truth), 1)
    values, same = similarities[first, second], truth[first] == truth[second]
    result: dict[str, Any] = {}
    for name, chosen in (("same", values[same]), ("other", values[~same])):
        counts = np.histogram(chosen, BINS, (-1, 1))[0]
        result[name] = np.round(100 * counts / max(1, len(chosen)), 4).tolist()
        result[f"{name}Mean"] = round(float(chosen.mean()), 4) if len(chosen) else None
    return result


def widest_gap(outputs: np.ndarray, features: np.ndarray, places: np.ndarray) -> tuple[int, int] | None:
    """The pair of these places whose outputs are more alike than its representations, by as much as any."""
    if len(places) < 2:
        return None
    gap = (outputs - features)[np.ix_(places, places)]
    np.fill_diagonal(gap, -np.inf)
    first, second = np.unravel_index(int(gap.argmax()), gap.shape)
    return int(places[first]), int(places[second])


def pairs_section(outputs: Outputs, sheet: Sheet) -> dict[str, Any] | None:
    """Pairs of each class and the distribution over all; None without truth or without representations."""
    known = outputs.take(np.flatnonzero(outputs.known))
    if known.features is None or len(known) < 2:
        return None
    chosen = known.take(sample(len(known), MOST))
    assert chosen.features is not None
    of_outputs, of_features = cosine_similarities(chosen.logits), cosine_similarities(chosen.features)
    right = chosen.predicted == chosen.truth
    examples: list[dict[str, Any]] = []
    for label in np.unique(chosen.truth):
        pair = widest_gap(of_outputs, of_features, np.flatnonzero(right & (chosen.truth == label)))
        if pair is not None and len(examples) < EXAMPLES:
            examples.append(
                {
                    "label": int(label),
                    "rows": [int(chosen.rows[i]) for i in pair],
                    "places": [sheet.place(int(chosen.rows[i]), chosen.images[i]) for i in pair],
                    "outputs": round(float(of_outputs[pair]), 4),
                    "representations": round(float(of_features[pair]), 4),
                }
            )
    return {
        "part": outputs.part,
        "images": len(chosen),
        "total": len(known),
        "examples": examples,
        "outputs": distribution(of_outputs, chosen.truth),
        "representations": distribution(of_features, chosen.truth),
    }
