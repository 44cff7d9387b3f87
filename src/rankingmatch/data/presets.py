"""Settings for images that nobody has tuned anything for: by their size and number alone."""

from typing import Any

TINY, MIDDLE = 16, 48  # sides in pixels, up to which a small and a middle network do
TIMES_SEEN = 60  # how often each image is seen
PER_STEP = 7  # unlabeled images for each labeled one of a batch


def suggested_settings(height: int, width: int, channels: int, count: int) -> dict[str, Any]:
    """Options for `count` training images of this shape, as a dataset's preset has them.

    The networks are small, for CPUs. Tiny images are treated like the digits of scikit-learn. Grey images may be
    letters or digits, which a mirror makes another; so only colour images are flipped.
    """
    side = min(height, width)
    tiny, middle = side <= TINY, side <= MIDDLE
    batch = 32 if tiny or 5000 <= count < 20_000 else 16 if count < 5000 else 64
    return {
        "flip": channels >= 3,
        "padding": round(side / 8),
        "cutout": side // 2,
        "network": "small" if tiny else "wrn-16-2" if middle else "wrn-13-1",
        "steps": min(100_000, max(1000, 100 * round(TIMES_SEEN * count / (PER_STEP * batch) / 100))),
        "batch_size": batch,
        "learning_rate": 0.1 if tiny else 0.03,
    }
