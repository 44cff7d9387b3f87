"""Maps: t-SNE of logits and of representations, as in the paper's Figures 2, 5, 6, 8 and 10."""

from typing import Any

import numpy as np

from rankingmatch.report.sheet import Sheet
from rankingmatch.report.subject import Outputs

FEWEST = 10  # images of which a map can be made


def sample(count: int, most: int) -> np.ndarray:
    """At most `most` places of `count`, the same every time, in order."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).permutation(count)[:most])


def embed(vectors: np.ndarray) -> np.ndarray:
    """(n, 2) t-SNE of (n, d) vectors; the same every time."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    vectors = np.asarray(vectors, np.float64)
    vectors = (vectors - vectors.mean(0)).astype(np.float32)
    # Vectors that are all alike have no map; a little noise keeps PCA and distances defined.
    spread = float(vectors.std()) or 1.0
    vectors = vectors + 1e-6 * spread * np.random.default_rng(0).standard_normal(vectors.shape).astype(np.float32)
    if vectors.shape[1] > 50:
        vectors = PCA(50, random_state=0).fit_transform(vectors) if len(vectors) > 50 else vectors
    start = PCA(min(2, vectors.shape[1]), random_state=0).fit_transform(vectors)
    start = np.pad(start, ((0, 0), (0, 2 - start.shape[1])))
    start = (start / (start[:, 0].std() or 1.0) * 1e-4).astype(np.float32)
    perplexity = min(30.0, (len(vectors) - 1) / 3)
    place = TSNE(2, perplexity=perplexity, init=start, learning_rate="auto", max_iter=750, random_state=0)
    return np.asarray(place.fit_transform(vectors))


def maps_section(outputs: Outputs, sheet: Sheet, most: int) -> dict[str, Any] | None:
    """The maps of a run and what is shown for each point; None if there are too few images."""
    chosen = outputs.take(sample(len(outputs), most))
    if len(chosen) < FEWEST:
        return None
    vectors = {"logits": chosen.logits}
    if chosen.features is not None:
        vectors["representations"] = chosen.features
    return {
        "part": outputs.part,
        "total": len(outputs),
        "places": sheet.places(chosen.rows, chosen.images),
        "rows": chosen.rows.tolist(),
        "truth": chosen.truth.tolist(),
        "predicted": chosen.predicted.tolist(),
        "confidence": np.round(chosen.confidence, 3).tolist(),
        "maps": {name: np.round(embed(values), 2).T.tolist() for name, values in vectors.items()},
    }
