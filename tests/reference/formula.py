"""Inputs and digests of the reference tests, by formulas that tests/nn/reference_support.h computes too.

A tensor is named. Its element i is the float32 nearest to  base + scale * (2 * u_i - 1), where u_i in [0, 1) has 24 random bits:
word i % 4 of the Philox4x32-10 block with key crc32(name) and counter i // 4, shifted right by 8, times 2^-24.
"""

import zlib

import numpy as np


def philox(seed, counters):
    """The four words of each block: an array (len(counters), 4) of uint32. As sinter::philox with stream 0."""
    mask = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    counters = np.asarray(counters, dtype=np.uint64)
    c0, c1 = counters & mask, counters >> half
    c2, c3 = np.zeros_like(c0), np.zeros_like(c0)
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0 = np.uint64(0xD2511F53) * c0
        p1 = np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = ((p1 >> half) ^ c1 ^ np.uint64(k0), p1 & mask,
                          (p0 >> half) ^ c3 ^ np.uint64(k1), p0 & mask)
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


# The known answers of Random123 for an all-zero key and counter.
assert [hex(w) for w in philox(0, [0])[0]] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


def seed_of(name):
    return zlib.crc32(name.encode())


def words(name, count):
    return philox(seed_of(name), np.arange((count + 3) // 4)).reshape(-1)[:count]


def values(name, shape, scale=1.0, base=0.0):
    """float32. With base != 0 the scale is a power of two, so that fused multiply-adds change nothing."""
    count = int(np.prod(shape, dtype=np.int64))
    unit = 2.0 * ((words(name, count) >> np.uint32(8)).astype(np.float64) * 2.0 ** -24) - 1.0
    return (base + scale * unit).astype(np.float32).reshape(shape)


def parameter(name, shape):
    """He-like: filters and matrices have variance 2 / fan-in, scales and variances lie in 1 +- 1/4, the rest in +- 1/4."""
    if len(shape) >= 2:
        return values(name, shape, scale=np.sqrt(6.0 / float(np.prod(shape[1:]))))
    base = 1.0 if name.endswith("weight") or name.endswith("running_var") else 0.0
    return values(name, shape, scale=0.25, base=base)


SAMPLES = 64
PROJECTIONS = 8


def digest(name, tensor):
    """What is stored of a large tensor, as float64: L2 norm, sum, 64 elements at random places, and 8 sums with random
    signs, so that every element takes part."""
    flat = np.asarray(tensor, dtype=np.float64).reshape(-1)
    blocks = philox(seed_of(name + "/places"), np.arange(SAMPLES)).astype(np.uint64)
    places = ((blocks[:, 0] << np.uint64(32)) | blocks[:, 1]) % np.uint64(flat.size)
    bits = words(name + "/signs", flat.size)
    signs = [((bits >> np.uint32(p)) & np.uint32(1)).astype(np.float64) * 2.0 - 1.0 for p in range(PROJECTIONS)]
    return np.concatenate([[np.linalg.norm(flat), flat.sum()], flat[places], [(flat * s).sum() for s in signs]])
