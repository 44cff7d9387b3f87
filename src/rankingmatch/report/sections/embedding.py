"""Embedding: t-SNE of logits and of representations, as in the paper's Figures 2, 5, 6, 8 and 10."""

import numpy as np

from rankingmatch.report.run_data import prediction_metrics, sample
from rankingmatch.report.sections import OfRun, ReportInput, Section

FEWEST_IMAGES = 10  # t-SNE of fewer images shows nothing
POINTS = {1: 2000, 2: 1500}  # most points of each plot, by the number of detailed runs
POINTS_OF_MANY_RUNS = 1000


class EmbeddingOfRun(OfRun):
    """What is shown of one run; lists have one entry for each point."""

    error: float | None  # percent
    total: int  # images of which the points are a sample
    rows: list[int]
    thumbnails: list[int]
    truth: list[int]  # -1 where unknown
    predicted: list[int]
    confidence: list[float]
    points: dict[str, list[list[float]]]  # "logits" and "representations" → [x, y]


def embedding_data(report: ReportInput) -> list[EmbeddingOfRun]:
    """t-SNE of each detailed run that has a model and enough images."""
    points = report.points or POINTS.get(len(report.detailed), POINTS_OF_MANY_RUNS)
    runs: list[EmbeddingOfRun] = []
    for of_run, predictions, sprite in report.predictions():
        if min(len(predictions), points) < FEWEST_IMAGES:
            continue
        chosen = predictions.take(sample(len(predictions), points))
        vectors = {"logits": chosen.logits}
        if chosen.features is not None:
            vectors["representations"] = chosen.features
        metrics = prediction_metrics(predictions)
        runs.append(
            {
                **of_run,
                "error": metrics.estimate["error"] if metrics else None,
                "total": len(predictions),
                "rows": chosen.rows.tolist(),
                "thumbnails": sprite.add(chosen.rows, chosen.images),
                "truth": chosen.truth.tolist(),
                "predicted": chosen.predicted.tolist(),
                "confidence": np.round(chosen.confidence, 3).tolist(),
                "points": {name: np.round(embed(values), 2).T.tolist() for name, values in vectors.items()},
            }
        )
    return runs


def embed(vectors: np.ndarray) -> np.ndarray:
    """(n, 2) t-SNE of (n, d) vectors; the same every time."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    vectors = np.asarray(vectors, np.float64)
    vectors = (vectors - vectors.mean(0)).astype(np.float32)
    # A little noise keeps PCA and distances defined when all vectors are equal.
    spread = float(vectors.std()) or 1.0
    vectors = vectors + 1e-6 * spread * np.random.default_rng(0).standard_normal(vectors.shape).astype(np.float32)
    if vectors.shape[1] > 50 and len(vectors) > 50:
        vectors = PCA(50, random_state=0).fit_transform(vectors)
    start = PCA(min(2, vectors.shape[1]), random_state=0).fit_transform(vectors)
    start = np.pad(start, ((0, 0), (0, 2 - start.shape[1])))
    start = (start / (start[:, 0].std() or 1.0) * 1e-4).astype(np.float32)
    perplexity = min(30.0, (len(vectors) - 1) / 3)
    tsne = TSNE(2, perplexity=perplexity, init=start, learning_rate="auto", max_iter=750, random_state=0)
    return np.asarray(tsne.fit_transform(vectors))


SECTION = Section("embedding", "Embedding", embedding_data)
