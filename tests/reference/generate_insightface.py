"""Writes PyTorch's steps of the recipe of docs/train_insightface.md ("The recipe of another program"), which
tests/examples/train_insightface_steps_test.cpp compares with, to tests/data/reference/.

Run by maintainers, with PyTorch and safetensors installed: python tests/reference/generate_insightface.py
"""

import torch
from safetensors.torch import save_file

import formula
import generate_face as face

SIZE, CLASSES, DIMENSIONS, BATCH, BATCHES, EPOCHS = 32, 10, 512, 20, 4, 4
STEPS, EARLY = EPOCHS * BATCHES, 2  # momenta are stored after EARLY steps


def values(name, shape, scale, dtype):
    return torch.from_numpy(formula.values("insightface." + name, shape, scale=scale)).to(dtype)


def data(dtype):
    """Images of identities, each with its own grain."""
    labels = torch.from_numpy(formula.words("insightface.labels", BATCH * BATCHES).astype("int64") % CLASSES)
    people = values("people", (CLASSES, 3, SIZE, SIZE), 0.5, dtype)
    return people[labels] + values("grain", (BATCH * BATCHES, 3, SIZE, SIZE), 1.0, dtype), labels


def make_model(dtype):
    model = face.fill(face.IResNet([2, 2, 2, 2], 64, (SIZE // 16, SIZE // 16), DIMENSIONS), "insightface.")
    model.features.weight.requires_grad = True
    for name, value in model.named_buffers():  # of a network that was never trained
        value.fill_(1.0 if name.endswith("running_var") else 0.0)
    return model.to(dtype), values("head.weight", (CLASSES, DIMENSIONS), 0.015625, dtype).requires_grad_()


def steps(dtype):
    (model, centres), (images, labels) = make_model(dtype), data(dtype)
    named = [("backbone." + name, value) for name, value in model.named_parameters()] + [("head.weight", centres)]
    parameters = [value for _, value in named]
    optimizer = torch.optim.SGD(parameters, 0.02, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=STEPS)
    out = {key: [] for key in ("losses", "norms", "rates", "momenta")}
    digests = {}
    for step in range(STEPS):
        rows = slice(step % BATCHES * BATCH, (step % BATCHES + 1) * BATCH)
        loss = face.head_loss(model(images[rows]), centres, labels[rows], exact=True)
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 5)
        optimizer.step()
        group = optimizer.param_groups[0]
        for key, value in zip(out, (loss.item(), norm.item(), group["lr"], group["momentum"])):
            out[key].append(value)
        schedule.step()
        if step + 1 == EARLY:
            for name, value in named:
                buffer = optimizer.state[value]["momentum_buffer"].double().numpy()
                digests["momentum." + name] = torch.from_numpy(formula.digest(name, buffer))
    out = {key: torch.tensor(numbers, dtype=torch.float64) for key, numbers in out.items()}
    with torch.no_grad():
        out["embeddings"] = model.eval()(images[:BATCH]).double()
    return out | digests


def apart(name, a, b):
    return f"{name}: {((a - b).abs().max() / b.abs().max()).item():.2g}"


if __name__ == "__main__":
    torch.set_num_threads(2)
    exact, rounded = steps(torch.float64), steps(torch.float32)
    print("losses", exact["losses"].tolist(), "norms", exact["norms"].tolist())
    print("float32, relative error of each loss", ((rounded["losses"] - exact["losses"]).abs() / exact["losses"]).tolist())
    momenta = max((rounded[name] - exact[name]).abs().max() / exact[name][0] for name in exact if name.startswith("mom") and "." in name)
    print("float32,", apart("embeddings", rounded["embeddings"], exact["embeddings"]), "momenta", momenta.item())
    save_file({name: value.contiguous() for name, value in exact.items()}, face.FOLDER / "insightface_float64.safetensors")
