"""Say what a picture shows, with an exported model, ONNX Runtime and Pillow; neither torch nor rankingmatch.

First: rankingmatch export runs/mine model.onnx. Then: python onnx_inference.py model.onnx picture.png …
"""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

model, *pictures = sys.argv[1:]
session = onnxruntime.InferenceSession(model)
classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
_, channels, height, width = session.get_inputs()[0].shape  # the file says which images it takes

for picture in pictures:
    upright = ImageOps.exif_transpose(Image.open(picture)).convert("L" if channels == 1 else "RGB")
    image = upright.resize((width, height), Image.Resampling.LANCZOS)  # as in training: the whole picture, squeezed
    pixels = np.asarray(image, dtype=np.uint8).reshape(1, height, width, channels)
    (probabilities,) = session.run(None, {session.get_inputs()[0].name: pixels.transpose(0, 3, 1, 2)})[0]
    print(f"{picture}: {classes[probabilities.argmax()]}, {probabilities.max():.0%} sure")
