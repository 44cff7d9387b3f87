"""Predict the classes of images with an exported model: ONNX Runtime and Pillow, without torch and rankingmatch.

First: rankingmatch export runs/mine model.onnx. Then: python onnx_inference.py model.onnx image.png …
"""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

model, *paths = sys.argv[1:]
session = onnxruntime.InferenceSession(model)
about = session.get_modelmeta().custom_metadata_map
classes = json.loads(about["classes"])
resize = ImageOps.fit if about["resize"] == "crop" else Image.Image.resize  # keep the proportions, or squeeze
_, channels, height, width = session.get_inputs()[0].shape  # the input shape is stored in the file

for path in paths:
    upright = ImageOps.exif_transpose(Image.open(path)).convert("L" if channels == 1 else "RGB")
    image = resize(upright, (width, height), Image.Resampling.LANCZOS)  # as in training
    pixels = np.asarray(image, dtype=np.uint8).reshape(1, height, width, channels)
    (probabilities,) = session.run(None, {session.get_inputs()[0].name: pixels.transpose(0, 3, 1, 2)})[0]
    print(f"{path}: {classes[probabilities.argmax()]} ({probabilities.max():.0%})")
