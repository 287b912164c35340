#!/usr/bin/env python3
"""Makes the verification sets of this folder: two pairs of pictures, (rgb, rgb) of one person and (rgb, gray) of two.

usage: make_pickles.py OUTPUT_FOLDER      (the files here: Python 3.11, NumPy 2.4)

bytes_<p>.bin holds bytes in protocol p, array_<p>.bin numpy arrays. python2_*.bin are what cPickle writes in protocol 2,
put together opcode by opcode, with the names of NumPy before 2.0.
"""

import pickle
import struct
import sys
from pathlib import Path

import numpy as np

PICTURES = Path(__file__).parent.parent / "images"
BINS = [(PICTURES / name).read_bytes() for name in ["rgb.jpg", "rgb.jpg", "rgb.jpg", "gray.jpg"]]
SAME = [True, False]


def string(value):
    """A str of Python 2: SHORT_BINSTRING or BINSTRING."""
    return b"U" + bytes([len(value)]) + value if len(value) < 256 else b"T" + struct.pack("<i", len(value)) + value


def array(value, first):
    """A numpy array as Python 2 pickles it; the first puts its names into the memo."""
    shape = b"K" + bytes([len(value)]) if len(value) < 256 else b"M" + struct.pack("<H", len(value))
    if first:
        reconstruct = b"cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\nq\x02K\x00\x85U\x01bq\x03\x87R"
        dtype = b"cnumpy\ndtype\nq\x04U\x02u1K\x00K\x01\x87Rq\x05(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    else:
        reconstruct, dtype = b"h\x01h\x02K\x00\x85h\x03\x87R", b"h\x05"
    return reconstruct + b"(K\x01" + shape + b"\x85" + dtype + b"\x89" + string(value) + b"tb"


def python2(items):
    return b"\x80\x02](" + b"".join(items) + b"e]q\x07(\x88\x89e\x86."


def main(folder):
    for protocol in range(2, 6):
        bins = [bytearray(b) for b in BINS] if protocol == 5 else BINS
        (folder / f"bytes_{protocol}.bin").write_bytes(pickle.dumps((bins, SAME), protocol))
        arrays = [np.frombuffer(bytearray(b), dtype=np.uint8) for b in BINS]
        same = np.array(SAME) if protocol == 4 else SAME
        (folder / f"array_{protocol}.bin").write_bytes(pickle.dumps((arrays, same), protocol))
    (folder / "python2_bytes.bin").write_bytes(python2([string(b) for b in BINS]))
    (folder / "python2_array.bin").write_bytes(python2([array(b, i == 0) for i, b in enumerate(BINS)]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
