"""timm's RandAugment (rand-mM-mstdS-inc1) on batches of pixels, written anew from its definition, so that it needs PyTorch alone.

Pixels are whole numbers in float tensors (N, 3, H, W). Two steps of 15 for each image, each done with probability 1/2, of a
strength that is normally distributed; ranges, rounding and the arithmetic of pixels are those of timm 1.0 and Pillow, but what comes
in from beyond the border is black and the nearest pixel is shown, as in Sinter. What is drawn is drawn on the host.
"""
import numpy as np
import torch
import torch.nn.functional as F

GEOMETRIC = ["shear_x", "shear_y", "translate_x", "translate_y", "rotate"]
STEPS = ["autocontrast", "equalize", "invert", "posterize", "solarize", "solarize_add", "color", "contrast", "brightness",
         "sharpness", *GEOMETRIC]


def column(values, x):
    return torch.as_tensor(values, dtype=torch.float32).to(x.device, non_blocking=True).view(-1, 1, 1, 1)


def blend(other, x, factor):
    return (other + factor * (x - other)).clamp(0, 255).floor()


def grey(x):
    red, green, blue = x.unbind(1)
    return ((red * 19595 + green * 38470 + blue * 7471 + 32768) / 65536).floor()[:, None]


def smooth(x):
    weights = torch.tensor([[1, 1, 1], [1, 5, 1], [1, 1, 1]], device=x.device, dtype=x.dtype).expand(3, 1, 3, 3)
    result = x.clone()
    result[:, :, 1:-1, 1:-1] = (F.conv2d(x, weights, groups=3) / 13 + 0.5).floor()
    return result


def autocontrast(x):
    least, most = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    return torch.where(most > least, ((x - least) * 255 / (most - least).clamp(min=1) + 1e-4).floor(), x)


def equalize(x):
    n, channels, height, width = x.shape
    levels = x.long().view(n * channels, -1)
    counts = torch.zeros(n * channels, 256, dtype=torch.long, device=x.device).scatter_add_(1, levels, torch.ones_like(levels))
    last = counts.gather(1, levels.amax(1, keepdim=True))
    step = (height * width - last) // 255
    table = (step // 2 + counts.cumsum(1) - counts) // step.clamp(min=1)
    return torch.where(step > 0, table.clamp(max=255).gather(1, levels), levels).view_as(x).float()


def warped(x, matrices):
    """What lies at matrix * (x, y, 1), in pixels whose edges are whole numbers, for each pixel's middle."""
    n, _, height, width = x.shape
    matrices = torch.as_tensor(np.asarray(matrices), dtype=torch.float32).to(x.device, non_blocking=True)
    ys, xs = torch.meshgrid(torch.arange(height, device=x.device) + 0.5, torch.arange(width, device=x.device) + 0.5, indexing="ij")
    places = torch.stack([xs, ys, torch.ones_like(xs)], -1).view(1, -1, 3) @ matrices.transpose(1, 2)
    column_, row = places[..., 0].floor(), places[..., 1].floor()
    seen = (column_ >= 0) & (column_ < width) & (row >= 0) & (row < height)
    source = (row * width + column_).clamp(0, height * width - 1).long()[:, None].expand(-1, 3, -1)
    return (x.flatten(2).gather(2, source) * seen[:, None]).view_as(x)


def matrix(step, level, sign, height, width):
    share = level / 10
    if step == "shear_x":
        return [[1, sign * 0.3 * share, 0], [0, 1, 0]]
    if step == "shear_y":
        return [[1, 0, 0], [sign * 0.3 * share, 1, 0]]
    if step == "translate_x":
        return [[1, 0, sign * 0.45 * share * width], [0, 1, 0]]
    if step == "translate_y":
        return [[1, 0, 0], [0, 1, sign * 0.45 * share * height]]
    angle = -np.deg2rad(sign * 30 * share)
    cos, sin, x, y = np.cos(angle), np.sin(angle), width / 2, height / 2
    return [[cos, sin, x - cos * x - sin * y], [-sin, cos, y + sin * x - cos * y]]


def apply_step(step, x, levels, signs):
    """`levels` in [0, 10] and `signs`, 1 or -1, of the images of x, as numpy has them."""
    if step in GEOMETRIC:
        return warped(x, [matrix(step, level, sign, *x.shape[2:]) for level, sign in zip(levels, signs)])
    if step == "autocontrast":
        return autocontrast(x)
    if step == "equalize":
        return equalize(x)
    if step == "invert":
        return 255 - x
    if step == "posterize":
        size = column(2.0 ** (8 - (4 - np.floor(4 * levels / 10))), x)
        return (x / size).floor() * size
    if step == "solarize":
        return torch.where(x < column(256 - np.minimum(256, np.floor(256 * levels / 10)), x), x, 255 - x)
    if step == "solarize_add":
        return torch.where(x < 128, (x + column(np.minimum(128, np.floor(110 * levels / 10)), x)).clamp(max=255), x)
    factor = column(np.maximum(0.1, 1 + signs * 0.9 * levels / 10), x)
    if step == "color":
        return blend(grey(x), x, factor)
    if step == "contrast":
        return blend((grey(x).mean((2, 3), keepdim=True) + 0.5).floor(), x, factor)
    if step == "brightness":
        return blend(torch.zeros_like(x), x, factor)
    return blend(smooth(x), x, factor)


def rand_augment(x, rng, magnitude, deviation, steps=2, probability=0.5):
    n = len(x)
    for _ in range(steps):
        choice, done = rng.integers(len(STEPS), size=n), rng.random(n) < probability
        levels = np.clip(rng.normal(magnitude, deviation, n), 0, 10)
        signs = np.where(rng.random(n) < 0.5, -1.0, 1.0)
        result = x.clone()
        for k, step in enumerate(STEPS):
            rows = np.flatnonzero(done & (choice == k))
            if len(rows):
                index = torch.from_numpy(rows).to(x.device, non_blocking=True)
                result[index] = apply_step(step, x[index], levels[rows], signs[rows])
        x = result
    return x
