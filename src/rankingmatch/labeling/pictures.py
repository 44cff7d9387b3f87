"""Pictures as a browser shows them."""

import io
import threading

from rankingmatch.data.decode import view_image

__all__ = ["SIDES", "jpeg"]

SIDES = {"large": 1600, "thumbnail": 256}  # the longest side in pixels
QUALITY = 88
_at_once = threading.BoundedSemaphore(2)  # decoding the largest picture that is accepted takes half a gigabyte


def jpeg(file: str, size: str) -> bytes:
    """A picture in sRGB as a JPEG file; raise UnreadableError if it cannot be decoded."""
    with _at_once:
        image = view_image(file, SIDES[size])
        content = io.BytesIO()
        image.save(content, "JPEG", quality=QUALITY)
        return content.getvalue()
