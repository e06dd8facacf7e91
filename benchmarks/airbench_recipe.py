"""The recipe of `experiment=airbench_cifar10`, restated in PyTorch for one GPU: its settings over many seeds.

    python benchmarks/airbench_recipe.py --seeds 5 recipe epochs=9 epochs=9,bias=1

A job takes half an hour on two cores and a few seconds here, so that settings can be told apart. Each argument is the
recipe with other settings, named as in `Recipe`; `recipe` changes none. It prints a table, the best first. Needs a GPU
with CUDA, PyTorch, and CIFAR-10 in msaccel's folder (`python -m msaccel data cifar10`).
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from msaccel.data import cifar_files

WIDTHS = 64, 256, 256
MEAN, SPREAD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
PUBLISHED_RATES = {"shifts": 0.053, "head": 0.67}  # of SGD, for the sum of a batch's losses
PUBLISHED_DECAY = 2e-6  # times the batch, over the rate


@dataclass(frozen=True)
class Recipe:
    """Ours; published: epochs=8,decay=0,steps=3,scaled=1,tanh=0,bias=1,logits=256,head=1,sgd=1.

    Attributes:
        scaled: whether filters are scaled to the norm √rows before each step.
        steps: of Newton and Schulz in Muon.
        bias: whether the first layer has one.
        bias_epochs: epochs in which it is trained, at a rate that falls to 0 in them.
        logits: what the dense layer's outputs are divided by.
        head: the standard deviation of the dense layer's first weights; 0 for that of `nn.Linear`.
        sgd: whether SGD at the published rates trains shifts, bias and dense layer, instead of AdamW.
    """

    batch: int = 2000
    epochs: int = 10
    lr: float = 0.24
    momentum: float = 0.6
    decay: float = 0.12
    steps: int = 5
    scaled: int = 0
    adamw_lr: float = 0.02
    sgd: int = 0
    bias: int = 0
    bias_epochs: int = 3
    tanh: int = 1
    logits: float = 9
    head: float = 0
    smoothing: float = 0.2


class Group(nn.Module):
    def __init__(self, before: int, width: int, activation: nn.Module) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(c, width, 3, padding=1, bias=False) for c in (before, width))
        self.norm1, self.norm2 = (nn.BatchNorm2d(width, momentum=0.4) for _ in range(2))
        for norm in (self.norm1, self.norm2):
            norm.weight.requires_grad = False
        for conv in (self.conv1, self.conv2):
            nn.init.dirac_(conv.weight.data[: conv.in_channels])
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        x = self.activation(self.norm1(functional.max_pool2d(self.conv1(x), 2)))
        return self.activation(self.norm2(self.conv2(x)))


class Network(nn.Module):
    def __init__(self, recipe: Recipe, images: Tensor) -> None:
        super().__init__()
        self.activation = nn.GELU("tanh" if recipe.tanh else "none")
        self.whiten = nn.Conv2d(3, 24, 2, bias=bool(recipe.bias))
        self.whiten.weight.requires_grad = False
        self.groups = nn.Sequential(*(Group(*channels, self.activation) for channels in pairwise((24, *WIDTHS))))
        self.head = nn.Linear(WIDTHS[-1], 10, bias=False)
        if recipe.head:
            self.head.weight.data *= recipe.head / self.head.weight.data.std()
        self.logits = recipe.logits
        patches = images.unfold(2, 2, 1).unfold(3, 2, 1).transpose(1, 3).reshape(-1, 12)
        variances, vectors = torch.linalg.eigh((patches.T @ patches).double() / len(patches))
        filters = (vectors.T / torch.sqrt(variances + 5e-4)[:, None]).float().reshape(-1, 3, 2, 2)
        self.whiten.weight.data.copy_(torch.cat((filters, -filters)))

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(self.groups(self.activation(self.whiten(x))), 3)
        return self.head(x.flatten(1)) / self.logits


class Muon:
    """As `msaccel.training.optimizers.muon`: no filter here has more rows than columns."""

    def __init__(self, filters: list[nn.Parameter], recipe: Recipe) -> None:
        self.filters, self.recipe = filters, recipe
        self.momenta = [torch.zeros_like(weight) for weight in filters]

    def step(self, share: float) -> None:
        recipe = self.recipe
        for weight, momentum in zip(self.filters, self.momenta, strict=True):
            gradient = weight.grad
            assert gradient is not None
            momentum.mul_(recipe.momentum).add_(gradient)
            direction = self.orthogonalised(gradient.add(momentum, alpha=recipe.momentum).flatten(1))
            keeps = len(weight) ** 0.5 / weight.norm() if recipe.scaled else 1 - recipe.lr * share * recipe.decay
            weight.data.mul_(keeps).add_(direction.view_as(weight), alpha=-recipe.lr * share)

    def orthogonalised(self, matrix: Tensor) -> Tensor:
        x = matrix.bfloat16()
        x = x / (x.norm() + 1e-7)
        for _ in range(self.recipe.steps):
            square = x @ x.T
            x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
        return x.float()


def others(network: Network, recipe: Recipe) -> torch.optim.Optimizer:
    """The optimizer of all but the filters; its first group is the bias of the first layer."""
    bias = [network.whiten.bias] if network.whiten.bias is not None else []
    shifts = [weight for weight in network.groups.parameters() if weight.ndim == 1 and weight.requires_grad]
    parts = {"bias": bias, "shifts": shifts, "head": [network.head.weight]}
    groups: list[dict[str, Any]] = []
    for name, weights in parts.items():
        rate, decay = recipe.adamw_lr, recipe.decay if name == "head" else 0.0
        if recipe.sgd:
            rate = PUBLISHED_RATES["head" if name == "head" else "shifts"]
            decay = PUBLISHED_DECAY * recipe.batch / rate
        groups.append({"params": weights, "lr": rate, "peak": rate, "weight_decay": decay})
    if recipe.sgd:
        return torch.optim.SGD(groups, lr=1.0, momentum=0.85, nesterov=True)
    return torch.optim.AdamW(groups, lr=1.0, betas=(0.9, 0.95), eps=1e-10)


def moved(images: Tensor) -> Tensor:
    """Each image moved by up to two pixels both ways; its edge is mirrored: (n, 3, 36, 36) to (n, 3, 32, 32)."""
    shifts = torch.randint(0, 5, (len(images), 2), device=images.device)
    result = torch.empty_like(images[..., :32, :32], memory_format=torch.channels_last)
    for top in range(5):
        for left in range(5):
            these = (shifts[:, 0] == top) & (shifts[:, 1] == left)
            result[these] = images[these, :, top : top + 32, left : left + 32]
    return result


def trained(recipe: Recipe, seed: int, images: Tensor, labels: Tensor) -> tuple[Network, float]:
    """The network, and its accuracy on the batches of the last epoch."""
    torch.manual_seed(seed)
    count, epoch_steps = len(images), len(images) // recipe.batch
    total = recipe.epochs * epoch_steps
    network = Network(recipe, images[:5000]).to(images.device, memory_format=torch.channels_last)
    muon = Muon([weight for weight in network.groups.parameters() if weight.ndim == 4], recipe)
    rest = others(network, recipe)
    mirrored = (torch.rand(count, device=images.device) < 0.5).view(-1, 1, 1, 1)
    started = torch.where(mirrored, images.flip(-1), images)
    padded = functional.pad(started, (2,) * 4, "reflect").half().contiguous(memory_format=torch.channels_last)
    right: list[Tensor] = []
    for step in range(total):
        epoch, place = divmod(step, epoch_steps)
        if not place:
            drawn = moved(padded).flip(-1) if epoch % 2 else moved(padded)
            order = torch.randperm(count, device=images.device)
        batch = order[place * recipe.batch : (place + 1) * recipe.batch]
        with torch.autocast("cuda", torch.float16):
            outputs = network(drawn[batch].contiguous(memory_format=torch.channels_last)).float()
        functional.cross_entropy(outputs, labels[batch], label_smoothing=recipe.smoothing, reduction="sum").backward()
        share = 1 - step / total
        of_bias = max(0.0, 1 - step / (recipe.bias_epochs * epoch_steps))
        for group, of_peak in zip(rest.param_groups, (of_bias, share, share), strict=True):
            group["lr"] = group["peak"] * of_peak
        rest.step()
        muon.step(share)
        network.zero_grad()
        if epoch == recipe.epochs - 1:
            right.append((outputs.argmax(1) == labels[batch]).float().mean())
    return network, torch.stack(right).mean().item()


@torch.no_grad()
def evaluated(network: Network, images: Tensor, labels: Tensor) -> tuple[float, float]:
    """Accuracy and loss of the mean over six views, half the weight on the two that are not moved."""
    network.eval()

    def of_both(x: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.float16):
            return torch.cat([network(part) + network(part.flip(-1)) for part in x.split(2000)]).float() / 2

    around = functional.pad(images, (1,) * 4, "reflect")
    logits = of_both(images) / 2 + (of_both(around[..., :32, :32]) + of_both(around[..., 2:, 2:])) / 4
    return (logits.argmax(1) == labels).float().mean().item(), functional.cross_entropy(logits, labels).item()


def loaded(files: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    folder = Path(os.environ.get("MSACCEL_CACHE", "~/.cache/msaccel")).expanduser() / "cifar10"
    images, labels = cifar_files.read(folder, files)
    mean, spread = (torch.tensor(values, device="cuda").view(1, 3, 1, 1) for values in (MEAN, SPREAD))
    x = (torch.from_numpy(images).cuda() / 255 - mean) / spread
    return x.contiguous(memory_format=torch.channels_last), torch.from_numpy(labels).long().cuda()


def recipe_of(text: str) -> Recipe:
    pairs = dict(pair.split("=") for pair in text.split(",")) if text != "recipe" else {}
    kinds = {name: type(getattr(Recipe(), name)) for name in Recipe.__dataclass_fields__}
    return replace(Recipe(), **{name: kinds[name](value) for name, value in pairs.items()})


def row(text: str, scores: Sequence[tuple[float, float, float]]) -> str:
    accuracies, losses, of_training = zip(*scores, strict=True)
    spread = 100 * statistics.stdev(accuracies) if len(scores) > 1 else math.nan
    means = 100 * statistics.mean(accuracies), statistics.mean(losses), 100 * statistics.mean(of_training)
    return f"| `{text}` | {len(scores)} | {means[0]:.2f} % | {spread:.2f} | {means[1]:.3f} | {means[2]:.1f} % |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="+", help="settings, for example epochs=9,bias=1")
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    train, test = loaded(cifar_files.TRAIN), loaded(cifar_files.TEST)
    scores: dict[str, list[tuple[float, float, float]]] = {text: [] for text in given.recipes}
    for seed in range(given.seeds):  # all in turn
        for text, found in scores.items():
            network, of_training = trained(recipe_of(text), seed, *train)
            found.append((*evaluated(network, *test), of_training))
            print(f"{text}, seed {seed}: {found[-1][0]:.4f}", flush=True)
    print("| settings | n | accuracy | its standard deviation | loss | of the last training batches |")
    print("|---|---|---|---|---|---|")
    for text in sorted(scores, key=lambda text: -statistics.mean(score[0] for score in scores[text])):
        print(row(text, scores[text]))


if __name__ == "__main__":
    main()
