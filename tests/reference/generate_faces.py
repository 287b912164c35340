"""Writes to tests/data/reference/ what others compute with faces: roc.safetensors, what scikit-learn says of scores of pairs
(tests/nn/roc_test.cpp), and alignment.safetensors, Umeyama's similarities by NumPy's SVD and images that OpenCV has moved by
them (tests/nn/data/faces/align_test.cpp).

Run by maintainers, with scikit-learn, opencv-python-headless<5 and safetensors installed: python tests/reference/generate_faces.py.
OpenCV 5 does not round places to 1/32 of a pixel, as 4 does.
"""

from pathlib import Path

import cv2
import numpy as np
from safetensors.numpy import save_file
from sklearn.metrics import auc, roc_curve

import formula

FOLDER = Path(__file__).resolve().parent.parent / "data/reference"
FARS = [1e-3, 1e-2, 1e-1]


def insightface_points(labels, scores):
    """FAR and TAR by the rule of InsightFace's eval_ijbc.py, and the area."""
    fpr, tpr, _ = roc_curve(labels, scores)
    area = auc(fpr, tpr)
    fpr, tpr = np.flipud(fpr), np.flipud(tpr)
    points = []
    for far in FARS:
        _, index = min(zip(abs(fpr - far), range(len(fpr))))
        points += [fpr[index], tpr[index]]
    return points + [area]


def roc_cases():
    """Scores on a grid of `steps`, so that many are equal; genuine ones a little higher."""
    stored = []
    for case, (pairs, steps) in enumerate([(50, 4), (200, 20), (1000, 100), (3000, 1000), (3000, 2 ** 20)]):
        labels = formula.words(f"roc.{case}.labels", pairs) % np.uint32(3) == 0
        scores = formula.values(f"roc.{case}.scores", (pairs,)) + np.float32(0.75) * labels.astype(np.float32)
        scores = (np.floor(scores * np.float32(steps)) / np.float32(steps)).astype(np.float32)
        stored.append(insightface_points(labels, scores))
    return np.array(stored)


TEMPLATE = np.array([(38.2946, 51.6963), (73.5318, 51.5014), (56.0252, 71.7366), (41.5493, 92.3655), (70.7299, 92.2041)])


def umeyama(source, target):
    """The 2x3 matrix of Umeyama's article, without reflection."""
    p, q = source - source.mean(0), target - target.mean(0)
    covariance = q.T @ p / len(p)
    u, sigma, vt = np.linalg.svd(covariance)
    sign = np.array([1.0, 1.0 if np.linalg.det(u) * np.linalg.det(vt) > 0 else -1.0])
    rotation = u @ np.diag(sign) @ vt
    scale = (sigma * sign).sum() / (p ** 2).sum() * len(p)
    return np.column_stack([scale * rotation, target.mean(0) - scale * rotation @ source.mean(0)])


def similarities():
    """a, b, tx, ty for 200 draws of points around the template's."""
    draws = formula.values("align.points", (200, 5, 2), scale=64.0, base=64.0).astype(np.float64)
    matrices = [umeyama(points, TEMPLATE) for points in draws]
    return np.array([(m[0, 0], m[1, 0], m[0, 2], m[1, 2]) for m in matrices])


def moves():
    """a, b, tx, ty: turned, larger and smaller, and partly outside the image."""
    unit = formula.values("align.moves", (12, 4)).astype(np.float64)
    size, angle = 2.0 ** (1.5 * unit[:, 0]), 3.2 * unit[:, 1]
    return np.column_stack([size * np.cos(angle), size * np.sin(angle), 16 + 20 * unit[:, 2], 16 + 20 * unit[:, 3]])


def picture(name, height, width, channels):
    return (formula.words(name, height * width * channels) & np.uint32(255)).astype(np.uint8).reshape(height, width, channels)


def moved(image, m, height, width):
    matrix = np.array([[m[0], -m[1], m[2]], [m[1], m[0], m[3]]])
    return cv2.warpAffine(image, matrix, (width, height), flags=cv2.INTER_LINEAR, borderValue=0).reshape(height, width, -1)


def alignment():
    assert cv2.__version__.startswith("4."), cv2.__version__
    colours, grey = picture("align.colours", 50, 60, 3), picture("align.grey", 33, 21, 1)
    return {"similarities": similarities(), "moves": moves(), "colours": np.stack([moved(colours, m, 24, 32) for m in moves()]),
            "grey": np.stack([moved(grey, m, 24, 32) for m in moves()])}


if __name__ == "__main__":
    save_file({"insightface": roc_cases()}, FOLDER / "roc.safetensors")
    save_file(alignment(), FOLDER / "alignment.safetensors")
