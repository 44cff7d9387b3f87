"""Settings that follow from the size and number of images, for images without tuned settings."""

from typing import Any

__all__ = ["suggested_settings"]

TINY, MEDIUM = 16, 48  # the largest sides, in pixels, for which a small and a medium network are used
EPOCHS = 60  # how often each unlabeled image is seen
UNLABELED_PER_LABELED = 7  # in a batch


def suggested_settings(height: int, width: int, channels: int, count: int) -> dict[str, Any]:
    """Suggest settings for training images of one shape.

    The networks are small, for CPUs. Tiny images get the settings of scikit-learn's digits. Grayscale images may be
    letters or digits, which mirroring turns into others; so only color images are flipped.

    Parameters
    ----------
    height, width, channels
        The shape of the images.
    count
        The number of training images.

    Returns
    -------
    dict
        Values of options by name.
    """
    side = min(height, width)
    tiny, medium = side <= TINY, side <= MEDIUM
    batch = 32 if tiny or 5000 <= count < 20_000 else 16 if count < 5000 else 64
    return {
        "flip": channels >= 3,
        "padding": round(side / 8),
        "cutout": side // 2,
        "network": "small" if tiny else "wrn-16-2" if medium else "wrn-13-1",
        "steps": min(100_000, max(1000, 100 * round(EPOCHS * count / (UNLABELED_PER_LABELED * batch) / 100))),
        "batch_size": batch,
        "learning_rate": 0.1 if tiny else 0.03,
    }
