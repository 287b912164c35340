#!/usr/bin/env python3
"""Writes trivial.ppm: what Pillow makes of a part of rgb.ppm by the steps of TrivialAugmentWide, as torchvision calls it, one below
the other. Run by maintainers, with Pillow installed; tests/nn/augment/pillow_test.cpp compares."""
import math
import pathlib

from PIL import Image, ImageEnhance, ImageOps

FOLDER = pathlib.Path(__file__).resolve().parent
image = Image.open(FOLDER / "rgb.ppm").crop((5, 3, 32, 20))
width, height = image.size


def affine(matrix):
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST)


def steps(bin, sign):
    shear, factor = sign * 0.99 * bin / 30, 1 + sign * 0.99 * bin / 30
    pixels = int(sign * 32 * bin / 30)
    yield image
    yield affine((1, shear, 0, 0, 1, 0))
    yield affine((1, 0, 0, shear, 1, 0))
    yield affine((1, 0, -pixels, 0, 1, 0))
    yield affine((1, 0, 0, 0, 1, -pixels))
    yield image.rotate(sign * 135 * bin / 30, Image.Resampling.NEAREST)
    yield ImageEnhance.Brightness(image).enhance(factor)
    yield ImageEnhance.Color(image).enhance(factor)
    yield ImageEnhance.Contrast(image).enhance(factor)
    yield ImageEnhance.Sharpness(image).enhance(factor)
    yield ImageOps.posterize(image, 8 - round(bin / 5))
    yield ImageOps.solarize(image, math.ceil((30 - bin) * 8.5))
    yield ImageOps.autocontrast(image)
    yield ImageOps.equalize(image)


pictures = [*steps(10, 1), *steps(10, -1), *steps(23, 1), *steps(30, -1)]
column = Image.new("RGB", (width, height * len(pictures)))
for index, picture in enumerate(pictures):
    column.paste(picture, (0, index * height))
column.save(FOLDER / "trivial.ppm")
