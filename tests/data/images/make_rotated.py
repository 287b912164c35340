#!/usr/bin/env python3
"""Writes rotated.ppm: what Pillow makes of a part of rgb.ppm by rotating it, blended bilinearly, one below the other. Run by
maintainers, with Pillow installed; tests/nn/augment/pillow_test.cpp compares."""

from pathlib import Path

from PIL import Image

FOLDER = Path(__file__).parent
ANGLES = [10, -37.5, 90, 180]

image = Image.open(FOLDER / "rgb.ppm").crop((5, 3, 5 + 27, 3 + 17))
column = Image.new("RGB", (image.width, image.height * len(ANGLES)))
for place, angle in enumerate(ANGLES):
    column.paste(image.rotate(angle, Image.BILINEAR), (0, place * image.height))
column.save(FOLDER / "rotated.ppm")
