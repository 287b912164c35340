#!/usr/bin/env python3
"""Writes policies.ppm: what torchvision and timm make of a part of rgb.ppm by the steps of AugMix, timm's RandAugment, inversion,
greyscale, solarisation and Gaussian blur, one below the other; and auto_augment.txt: torchvision's tables of AutoAugment. Run by
maintainers, with torchvision and timm installed; tests/nn/augment/policies_test.cpp compares."""
import pathlib

import timm.data.auto_augment as timm_steps
import torchvision.transforms.autoaugment as steps
from PIL import Image, ImageOps
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as F

FOLDER = pathlib.Path(__file__).resolve().parent
image = Image.open(FOLDER / "rgb.ppm").crop((5, 3, 32, 20))
width, height = image.size
AUG_MIX = ["ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Posterize", "Solarize", "AutoContrast", "Equalize", "Brightness",
           "Color", "Contrast", "Sharpness"]
TIMM = ["AutoContrast", "Equalize", "Invert", "Rotate", "PosterizeIncreasing", "SolarizeIncreasing", "SolarizeAdd", "ColorIncreasing",
        "ContrastIncreasing", "BrightnessIncreasing", "SharpnessIncreasing", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel"]


def aug_mix(bin, sign):
    space = steps.AugMix()._augmentation_space(10, (height, width))
    for name in AUG_MIX:
        values, signed = space[name]
        value = float(values[bin]) if values.ndim > 0 else 0.0
        yield steps._apply_op(image, name, value * sign if signed else value, InterpolationMode.NEAREST, None)


def timm_rand(level, sign):
    timm_steps._randomly_negate = lambda value: sign * value
    for name in TIMM:
        hparams = {"img_mean": (0, 0, 0), "interpolation": Image.Resampling.NEAREST}
        yield timm_steps.AugmentOp(name, prob=1.0, magnitude=level, hparams=hparams)(image)


# Rounding decides for bin 2, whose shear puts middles of pixels on edges of others, and for bin 3, which solarises from 170.0000 on.
pictures = [*aug_mix(4, 1), *aug_mix(4, -1), *aug_mix(7, 1), *timm_rand(7.3, 1), *timm_rand(7.3, -1), *timm_rand(9.9, 1),
            ImageOps.grayscale(image).convert("RGB"), ImageOps.solarize(image, 128)]
pictures += [F.gaussian_blur(image, [13, 13], [sigma, sigma]) for sigma in (0.1, 0.7, 2.0)]
column = Image.new("RGB", (width, height * len(pictures)))
for index, picture in enumerate(pictures):
    column.paste(picture, (0, index * height))
column.save(FOLDER / "policies.ppm")

with open(FOLDER / "auto_augment.txt", "w", encoding="utf-8") as table:
    for policy in steps.AutoAugmentPolicy:
        for part in steps.AutoAugment(policy).policies:
            table.write(" ".join(f"{name} {probability} {strength or 0}" for name, probability, strength in part) + "\n")
