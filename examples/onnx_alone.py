"""The exported model without usfda: onnxruntime, numpy and Pillow are all that is needed.

usfda export examples-out/client.usfda -o examples-out/model.onnx
python examples/onnx_alone.py examples-out/model.onnx examples-out/uci/3/*.png
"""

import json
import math
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

onnxruntime.set_default_logger_severity(3)  # it warns that the strictness can be set; that is meant
session = onnxruntime.InferenceSession(sys.argv[1])

# The file itself says what its classes are and how an image is to be prepared.
about = session.get_modelmeta().custom_metadata_map
classes, record = json.loads(about["classes"]), json.loads(about["record"])
(_, height, width), crop = record["input_size"], record["crop_pct"]
how = Image.Resampling[record["interpolation"].upper()]


def prepare(path: str) -> np.ndarray:
    """An image as the model takes it: upright, RGB, cropped from the centre and scaled."""
    with Image.open(path) as photo:
        photo.draft(None, (math.ceil(max(height, width) / crop),) * 2)  # decodes a large JPEG at a part of its size
        upright = ImageOps.exif_transpose(photo).convert("RGB")
    return np.asarray(ImageOps.fit(upright, (width, height), how, bleed=(1 - crop) / 2))


paths = sys.argv[2:]
labels, scores, _ = session.run(None, {"image": np.stack([prepare(path) for path in paths])})
for path, label, score in zip(paths, labels, scores, strict=True):
    print(path, [*classes, "unknown"][label], f"{score:.2f}")  # the number after the last class means unknown
