"""Writes PyTorch's 20 steps of every margin that differs from row to row, which tests/nn/adaptive_margin_test.cpp compares with,
to tests/data/reference/. The margins are written from the papers' formulae.

Run by maintainers, with PyTorch and safetensors installed: python tests/reference/generate_margins.py
"""

import math

import numpy as np
import torch

import formula
import generate_face as face

ROWS, INPUTS, DIMENSIONS, CLASSES, BATCHES, STEPS = 12, 6, 8, 7, 3, 20
SCALE = 16.0
LENGTHS = np.array([2, 3, 6, 10, 16, 27, 45, 76, 128], dtype=np.float32)  # embeddings go beyond MagFace's range on both sides
F = torch.nn.functional


def normal_draws(seed, first, count):
    """Element i is made of the Philox block first + i, as sinter::Generator::normal()."""
    blocks = formula.philox(seed, np.arange(first, first + count)).astype(np.uint64)
    u = ((((blocks[:, 0] << np.uint64(32)) | blocks[:, 1]) >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0 ** -53
    v = (((blocks[:, 2] << np.uint64(32)) | blocks[:, 3]) >> np.uint64(11)).astype(np.float64) * 2.0 ** -53
    return torch.from_numpy(np.sqrt(-2.0 * np.log(u)) * np.cos(2.0 * np.pi * v))


class Margin:
    """Logits from cosines; `state` moves from step to step. Without a penalty."""

    def __init__(self):
        self.state, self.step = {}, 0

    def own(self, cosine, labels, norms):
        raise NotImplementedError

    def others(self, cosine, own):
        return cosine

    def penalty(self, norms):
        return torch.zeros_like(norms)

    def __call__(self, cosine, labels, norms):
        rows = torch.arange(len(labels))
        own = cosine[rows, labels]
        logits = self.others(cosine, own).index_put((rows, labels), self.own(own, norms))
        self.step += 1
        return SCALE * logits


class ArcFace(Margin):
    def own(self, own, norms):
        return torch.cos(torch.acos(own) + 0.5)


class AdaFace(Margin):
    def __init__(self):
        super().__init__()
        self.state = {"norm_mean": torch.tensor(20.0), "norm_deviation": torch.tensor(100.0)}

    def own(self, own, norms):
        n = norms.detach().clamp(0.001, 100)
        for name, value in (("norm_mean", n.mean()), ("norm_deviation", n.std())):
            self.state[name] = 0.01 * value + 0.99 * self.state[name].to(value.dtype)
        k = (0.333 * (n - self.state["norm_mean"]) / (self.state["norm_deviation"] + 0.001)).clamp(-1, 1)
        theta = torch.acos(own.clamp(-0.999, 0.999))
        return torch.cos((theta - 0.4 * k).clamp(0.001, math.pi - 0.001)) - (0.4 + 0.4 * k)


class ElasticFace(Margin):
    def __init__(self, of_cosine, mean, deviation, plus):
        super().__init__()
        self.of_cosine, self.mean, self.deviation, self.plus = of_cosine, mean, deviation, plus

    def own(self, own, norms):
        draws = normal_draws(formula.seed_of("margins.draws"), self.step * ROWS, ROWS).to(own.dtype)
        if self.plus:
            rank = torch.argsort(torch.argsort(own.detach()))  # 0 for the lowest
            draws = torch.sort(draws, descending=True).values[rank]
        margin = self.mean + self.deviation * draws
        return own - margin if self.of_cosine else torch.cos(torch.acos(own) + margin)


class MagFace(Margin):
    def own(self, own, norms):
        n = norms.clamp(10, 110)
        moved = torch.cos(torch.acos(own) + 0.45 + 0.0035 * (n - 10))
        return torch.where(own > 0, moved, own)

    def penalty(self, norms):
        n = norms.clamp(10, 110)
        return 35 * (n / 110 ** 2 + 1 / n)


class CurricularFace(Margin):
    def __init__(self):
        super().__init__()
        self.state = {"t": torch.tensor(0.0)}

    def own(self, own, norms):
        return torch.where(own > -math.cos(0.5), torch.cos(torch.acos(own) + 0.5), own - 0.5 * math.sin(0.5))

    def others(self, cosine, own):
        self.state["t"] = 0.01 * own.detach().mean() + 0.99 * self.state["t"].to(own.dtype)
        least = torch.cos(torch.acos(own.detach()) + 0.5)[:, None]
        return torch.where(cosine > least, cosine * (self.state["t"] + cosine), cosine)


MARGINS = {"adaface": AdaFace, "elastic_arc": lambda: ElasticFace(False, 0.5, 0.05, False),
           "elastic_cos": lambda: ElasticFace(True, 0.35, 0.05, False),
           "elastic_arc_plus": lambda: ElasticFace(False, 0.5, 0.0175, True),
           "elastic_cos_plus": lambda: ElasticFace(True, 0.35, 0.02, True), "magface": MagFace,
           "curricular": CurricularFace, "sub_centres": ArcFace}


def steps(name, dtype):
    centres = 3 if name == "sub_centres" else 1
    weight = torch.from_numpy(formula.values("margins.weight", (CLASSES, centres * DIMENSIONS))).to(dtype).requires_grad_()
    x = formula.values("margins.x", (BATCHES * ROWS, INPUTS)) * LENGTHS[np.arange(BATCHES * ROWS) % len(LENGTHS)][:, None]
    x = torch.from_numpy(x).to(dtype)
    labels = torch.from_numpy(formula.words("margins.labels", BATCHES * ROWS).astype("int64") % CLASSES)
    backbone = torch.from_numpy(formula.values("margins.backbone", (DIMENSIONS, INPUTS))).to(dtype).requires_grad_()
    optimizer = torch.optim.SGD([backbone, weight], 0.02, momentum=0.9)
    margin, losses, lengths = MARGINS[name](), [], []
    for step in range(STEPS):
        rows = slice(step % BATCHES * ROWS, (step % BATCHES + 1) * ROWS)
        z = F.linear(x[rows], backbone)
        cosine = F.linear(F.normalize(z), F.normalize(weight.view(-1, DIMENSIONS)))
        cosine = cosine.view(ROWS, CLASSES, centres).max(2).values
        norms = z.norm(dim=1)
        loss = (F.cross_entropy(margin(cosine, labels[rows], norms), labels[rows], reduction="none") + margin.penalty(norms)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        lengths.append(norms.detach())
    lengths = torch.cat(lengths)
    print(f"{name:17} lengths {lengths.min():.1f} to {lengths.max():.1f}, losses {losses[0]:.3f} {losses[-1]:.3f}")
    return {"losses": torch.tensor(losses, dtype=torch.float64), "backbone": backbone.detach(), "weight": weight.detach()} | margin.state


if __name__ == "__main__":
    out = {}
    for name in MARGINS:
        exact, rounded = steps(name, torch.float64), steps(name, torch.float32)
        for key, value in exact.items():
            apart = ((rounded[key].double() - value).abs().max() / value.abs().max()).item()
            print(f"    float32, {key}: {apart:.2g}")
        out |= {f"margins.{name}.{key}": value.double() for key, value in exact.items()}
    face.save("margins", out)
