"""Settings for images that nobody has tuned anything for: by their size and number alone."""

from typing import Any

TINY, MIDDLE = 16, 48  # sides in pixels, up to which a small and a middle network do


def suggested_settings(height: int, width: int, channels: int, count: int) -> dict[str, Any]:
    """Options for `count` training images of this shape, as a dataset's preset has them.

    The lengths in pixels, networks and batch sizes are those of the named datasets of that size. Grey images may be
    letters or digits, which a mirror makes another; so only colour images are flipped.
    """
    side = min(height, width)
    tiny, middle = side <= TINY, side <= MIDDLE
    return {
        "flip": channels >= 3,
        "padding": round(side / 8),
        "cutout": round(side / 2),
        "network": "small" if tiny else "wrn-28-2" if middle else "wrn-37-2",
        "steps": min(20_000, max(1000, count // 2)),
        "batch_size": 64 if middle and not tiny else 32,
        "learning_rate": 0.1 if tiny else 0.03,
    }
