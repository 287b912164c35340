#!/usr/bin/env python3
"""Writes augmented.ppm: what Pillow makes of a part of rgb.ppm by the steps of RandAugment, as torchvision calls it, and by those of
colour jitter, one below the other. Run by maintainers, with Pillow installed; tests/nn/augment/pillow_test.cpp compares."""
import math
import pathlib

from PIL import Image, ImageEnhance, ImageOps

FOLDER = pathlib.Path(__file__).resolve().parent
image = Image.open(FOLDER / "rgb.ppm").crop((5, 3, 32, 20))
width, height = image.size


def affine(matrix):
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST)


def hue(turn):
    h, s, v = image.convert("HSV").split()
    h = h.point(lambda value: (value + round(turn * 256)) % 256)
    return Image.merge("HSV", (h, s, v)).convert("RGB")


def steps(strength, sign):
    factor = 1 + sign * 0.9 * strength
    shear = sign * 0.3 * strength
    yield image
    yield affine((1, shear, 0, 0, 1, 0))
    yield affine((1, 0, 0, shear, 1, 0))
    yield affine((1, 0, -sign * int(150 / 331 * width * strength), 0, 1, 0))
    yield affine((1, 0, 0, 0, 1, -sign * int(150 / 331 * height * strength)))
    yield image.rotate(sign * 30 * strength, Image.Resampling.NEAREST)
    yield ImageEnhance.Brightness(image).enhance(factor)
    yield ImageEnhance.Color(image).enhance(factor)
    yield ImageEnhance.Contrast(image).enhance(factor)
    yield ImageEnhance.Sharpness(image).enhance(factor)
    yield ImageOps.posterize(image, round(8 - 4 * strength))
    yield ImageOps.solarize(image, math.ceil(255 * (1 - strength)))
    yield ImageOps.autocontrast(image)
    yield ImageOps.equalize(image)


pictures = [*steps(9 / 30, 1), *steps(9 / 30, -1), *steps(28 / 30, 1), hue(0.25), hue(-0.125)]
column = Image.new("RGB", (width, height * len(pictures)))
for index, picture in enumerate(pictures):
    column.paste(picture, (0, index * height))
column.save(FOLDER / "augmented.ppm")
