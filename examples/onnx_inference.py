"""Predict the classes of images with an exported model: ONNX Runtime and Pillow, without torch and rankingmatch.

First: rankingmatch export runs/mine model.onnx. Then: python onnx_inference.py model.onnx image.png …
"""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

STEPS = ["draft", "orientation", "plain", "resize", "mode"]


def read(path: str, how: dict) -> np.ndarray:
    """Read a file as in training, as the model's metadata describes it; the result is (height, width, channels)."""
    if how["order"] != STEPS:
        raise SystemExit("the model was exported by another version of rankingmatch; use the example of that version")
    size = how["width"], how["height"]
    with Image.open(path) as image:
        if image.mode == "F":
            raise SystemExit(f"{path} has floats instead of gray levels")
        gray = image.mode in ("1", "L", "LA", "La") or image.mode.startswith("I")
        enough = how["draft"] * max(size)
        if min(image.size) >= 2 * enough:  # a large JPEG is decoded at a fraction of its size
            image.draft(None, (enough, enough))
        image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I"):  # 16 bits: the upper eight
            image = Image.fromarray((np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8))
        if image.has_transparency_data:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, how["plain"]["transparent"]), image)
        image = image.convert("L" if gray else "RGB")
        if image.size != size:
            box = middle(image.size, size[0] / size[1]) if how["resize"] == "crop" else None
            image = image.resize(size, Image.Resampling[how["filter"].upper()], box, how["reducing_gap"])
        return np.asarray(image.convert(how["mode"]), dtype=np.uint8).reshape(size[1], size[0], -1)


def middle(size: tuple[int, int], ratio: float) -> tuple[float, float, float, float]:
    """The box of the largest part in the middle with this ratio of width to height."""
    width, height = min(size[0], size[1] * ratio), min(size[1], size[0] / ratio)
    left, top = (size[0] - width) / 2, (size[1] - height) / 2
    return left, top, left + width, top + height


def main() -> None:
    """Print the class of each image."""
    model, *paths = sys.argv[1:]
    session = onnxruntime.InferenceSession(model)
    about = session.get_modelmeta().custom_metadata_map
    classes, how = json.loads(about["classes"]), json.loads(about["preprocessing"])
    for path in paths:
        pixels = read(path, how)[None].transpose(0, 3, 1, 2)  # (1, channels, height, width)
        (probabilities,) = session.run(None, {session.get_inputs()[0].name: pixels})[0]
        print(f"{path}: {classes[probabilities.argmax()]} ({probabilities.max():.0%})")


if __name__ == "__main__":
    main()
