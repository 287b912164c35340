#!/usr/bin/env python3
"""Makes the pictures of this folder with Pillow, and beside each the pixels that Pillow itself reads from it.

usage: make_images.py OUTPUT_FOLDER      (the files here: Pillow 13.0 with libjpeg-turbo 3.2)

The picture is smooth, so that JPEG keeps it small: 24 rows of 40 pixels, red growing to the right, green downwards.
"""

import struct
import sys
from pathlib import Path

import numpy as np
from PIL import Image

HEIGHT, WIDTH = 24, 40


def picture():
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    red = x * 255 // (WIDTH - 1)
    green = y * 255 // (HEIGHT - 1)
    blue = 255 - (x + y) * 255 // (HEIGHT + WIDTH - 2)
    return Image.fromarray(np.stack([red, green, blue], -1).astype(np.uint8))


def exif_with_orientation(value):
    order = "<" if value % 2 else ">"  # both byte orders take part
    header = b"II*\0" if order == "<" else b"MM\0*"
    entry = struct.pack(order + "HHIHH", 0x0112, 3, 1, value, 0)
    return b"Exif\0\0" + header + struct.pack(order + "IH", 8, 1) + entry + struct.pack(order + "I", 0)


def save_colours(out, image):
    image.save(out / "rgb.jpg", quality=90)
    image.save(out / "progressive.jpg", quality=90, progressive=True)
    image.convert("L").save(out / "gray.jpg", quality=90)
    image.convert("CMYK").save(out / "cmyk.jpg", quality=95)
    # The same bytes declared as YCCK: the last byte of the Adobe marker is the transform. The colours are odd but exact.
    coded = bytearray((out / "cmyk.jpg").read_bytes())
    adobe = coded.index(b"\xff\xee\x00\x0eAdobe")
    coded[adobe + 15] = 2
    (out / "ycck.jpg").write_bytes(coded)


def save_orientations(out, image):
    """The upright picture stored turned, with the tag that undoes it."""
    turns = [None, Image.FLIP_LEFT_RIGHT, Image.ROTATE_180, Image.FLIP_TOP_BOTTOM, Image.TRANSPOSE, Image.ROTATE_90,
             Image.TRANSVERSE, Image.ROTATE_270]
    for value, turn in enumerate(turns, start=1):
        stored = image if turn is None else image.transpose(turn)
        stored.save(out / f"orientation_{value}.jpg", quality=95, subsampling=0, exif=exif_with_orientation(value))


def save_references(out):
    for name in ("rgb", "progressive", "cmyk", "ycck"):
        Image.open(out / f"{name}.jpg").convert("RGB").save(out / f"{name}.ppm")
    Image.open(out / "gray.jpg").save(out / "gray.pgm")
    rgb = Image.open(out / "rgb.ppm")
    rgb.resize((17, 11), Image.BILINEAR).save(out / "resized_11x17.ppm")
    rgb.resize((50, 27), Image.BILINEAR).save(out / "resized_27x50.ppm")
    rgb.resize((7, 9), Image.BILINEAR, box=(5, 2, 33.5, 20.25)).save(out / "box_9x7.ppm")
    rgb.resize((17, 11), Image.BICUBIC).save(out / "cubic_11x17.ppm")
    rgb.resize((50, 27), Image.BICUBIC).save(out / "cubic_27x50.ppm")
    rgb.resize((7, 9), Image.BICUBIC, box=(5, 2, 33.5, 20.25)).save(out / "cubic_box_9x7.ppm")
    bars = Image.fromarray(np.tile(np.arange(16) // 4 % 2 * 255, (6, 1)).astype(np.uint8))
    bars.resize((43, 9), Image.BICUBIC).save(out / "cubic_bars.pgm")  # beyond black and white beside each edge
    half = Image.open(out / "rgb.jpg")
    half.draft("RGB", (WIDTH // 2, HEIGHT // 2))
    half.save(out / "half.ppm")
    luma = Image.open(out / "rgb.jpg")
    luma.draft("L", (WIDTH, HEIGHT))
    luma.save(out / "luma.pgm")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = Path(sys.argv[1])
    image = picture()
    save_colours(out, image)
    save_orientations(out, image)
    save_references(out)


if __name__ == "__main__":
    main()
