"""What PyTorch makes of a small network in 20 updates: what `tests/training/test_against_torch.py` compares with.

`python benchmarks/torch_references.py [case ...]` trains in float64 on the CPU, prints where each case ends, and writes
tests/training/torch_references.safetensors anew; with names of cases it only prints. It needs PyTorch (the extra
`bench`; the file names the version) and `pip install schedulefree`, whose authors wrote it for PyTorch.

Samples and first weights are drawn by NumPy and are in the file, too. Options are chosen so that both sides compute the
same; the comments say where that takes some thought.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import schedulefree
import torch
import torch_ranks
from numpy.typing import NDArray
from safetensors.numpy import save_file
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch_problem import KEPT, SHARES, Arrays, drawn, flat, network_of

FILE = Path(__file__).resolve().parents[1] / "tests" / "training" / "torch_references.safetensors"
WARM_UP = (0.25, 0.5, 0.75) + (1.0,) * 17
OVERFLOWS = (4, 5, 12)  # updates with a sample that is infinite
Optimizers = list[torch.optim.Optimizer]


@dataclass(frozen=True)
class Case:
    """One training.

    Attributes:
        optimizers: made for a network, with their peak rates.
        shares: of these rates, by update.
        micro_batches: whose gradients are added up for one update.
        smoothing: of the labels, over all classes.
        clip: what becomes of the gradients of these weights.
        average: makes the mean of weights that is evaluated.
        scaled: with a dynamic loss scale, on samples that overflow now and then.
        inside: a context to train in.
    """

    optimizers: Callable[[nn.Sequential], Optimizers]
    shares: Sequence[float] = SHARES
    micro_batches: int = 1
    smoothing: float = 0.0
    clip: Callable[[Any], Any] = lambda weights: None
    average: Callable[[nn.Module], AveragedModel] | None = None
    scaled: bool = False
    inside: Callable[[], AbstractContextManager[Any]] = nullcontext


def one(kind: Callable[..., torch.optim.Optimizer], **settings: Any) -> Callable[[nn.Sequential], Optimizers]:
    return lambda network: [kind(network.parameters(), **settings)]


def muon(nesterov: bool) -> Callable[[nn.Sequential], Optimizers]:
    """The hidden matrix by Muon and all else by AdamW. The adjustment "original" is √max(1, m / n)."""

    def made(network: nn.Sequential) -> Optimizers:
        hidden = network[2].weight
        others = [weight for weight in network.parameters() if weight is not hidden]
        settings: dict[str, Any] = {"momentum": 0.8, "nesterov": nesterov, "adjust_lr_fn": "original"}
        return [
            torch.optim.Muon([hidden], lr=0.1, weight_decay=0.1, **settings),
            torch.optim.AdamW(others, lr=0.02, betas=(0.9, 0.97), eps=1e-12, weight_decay=0.1),
        ]

    return made


def late_schedulefree(network: nn.Sequential) -> Optimizers:
    """Schedule-free AdamW as if after a million updates, when nothing is left to correct of the second moment.

    The authors' code divides the moment by 1 − β₂ᵗ. Their paper, and msaccel, have √(1 − β₂ᵗ) in the rate, where it
    weakens the decay and the first shares of the average as well.
    """
    optimizer = schedulefree.AdamWScheduleFree(network.parameters(), **{**ADAM, "lr": 0.01}, weight_decay=0.1)
    for group in optimizer.param_groups:
        group["k"] = 10**6
    return [optimizer]


def exactly() -> AbstractContextManager[Any]:
    """PyTorch's Muon casts to bfloat16 for its Newton–Schulz steps; here it does not."""
    return mock.patch.object(torch.Tensor, "bfloat16", torch.Tensor.clone)  # it goes on in place


momentum = one(torch.optim.SGD, lr=0.1, momentum=0.9)
# PyTorch adds ε after the bias correction of Adam, and msaccel before it: with such a small one there is no difference.
ADAM: dict[str, Any] = {"lr": 0.03, "betas": (0.8, 0.97), "eps": 1e-12}
CASES = {
    "sgd": Case(one(torch.optim.SGD, lr=0.3, weight_decay=0.1)),
    "momentum": Case(momentum),
    "momentum with decay": Case(one(torch.optim.SGD, lr=0.1, momentum=0.8, weight_decay=0.1)),
    "nesterov": Case(one(torch.optim.SGD, lr=0.1, momentum=0.8, nesterov=True, weight_decay=0.1)),
    "adam": Case(one(torch.optim.Adam, weight_decay=0.1, **ADAM)),
    "adam with a large eps": Case(one(torch.optim.Adam, **{**ADAM, "eps": 0.1})),
    "adamw": Case(one(torch.optim.AdamW, weight_decay=0.1, **ADAM)),
    "muon": Case(muon(nesterov=True), inside=exactly),
    "muon without nesterov": Case(muon(nesterov=False), inside=exactly),
    "muon in bfloat16": Case(muon(nesterov=True)),
    # With a rate that falls these would go on to weigh by the largest so far, where msaccel weighs by the present one.
    "schedulefree sgd": Case(
        one(schedulefree.SGDScheduleFree, lr=0.3, momentum=0.7, weight_decay=0.1), shares=WARM_UP
    ),
    "schedulefree adamw": Case(late_schedulefree, shares=WARM_UP),
    "clip by norm": Case(momentum, clip=lambda weights: nn.utils.clip_grad_norm_(weights, 0.5)),  # its ε is 1e-6
    "clip by value": Case(momentum, clip=lambda weights: nn.utils.clip_grad_value_(weights, 0.05)),
    "accumulation": Case(momentum, micro_batches=4),
    "label smoothing": Case(momentum, smoothing=0.3),
    "ema": Case(momentum, average=lambda network: AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(0.8))),
    "swa": Case(momentum, average=AveragedModel),
    "loss scale": Case(momentum, scaled=True),
}  # fmt: skip


def evaluated(network: nn.Module, optimizer: Any, average: AveragedModel | None) -> list[NDArray[Any]]:
    """The weights that are evaluated; none if they are those that are trained."""
    if average is not None:
        return [flat(average)]
    if not hasattr(optimizer, "eval"):
        return []
    optimizer.eval()
    found = [flat(network)]
    optimizer.train()
    return found


def micro_batches(problem: Arrays, update: int, many: int, overflow: bool) -> Iterator[tuple[Any, Any]]:
    images, labels = (torch.from_numpy(problem[name][update]) for name in ("images", "labels"))
    images = images.double()
    if overflow:
        images[3, 2] = torch.inf
    yield from zip(images.chunk(many), labels.long().chunk(many), strict=True)


def trained(case: Case, problem: Arrays) -> Arrays:
    network = network_of(problem["start"])
    optimizers = case.optimizers(network)
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    peaks = [group["lr"] for group in groups]
    average = case.average(network) if case.average else None
    if hasattr(optimizers[0], "train"):  # schedule-free
        optimizers[0].train()
    scaler = torch.amp.GradScaler("cpu", enabled=case.scaled, init_scale=1024.0, growth_interval=4)
    losses, scales, weights, others = [], [], [], []
    for update, share in enumerate(case.shares):
        for group, peak in zip(groups, peaks, strict=True):
            group["lr"] = share * peak
        network.zero_grad()
        scales.append(scaler.get_scale())
        losses.append(0.0)
        for images, labels in micro_batches(problem, update, case.micro_batches, case.scaled and update in OVERFLOWS):
            loss = nn.functional.cross_entropy(network(images), labels, label_smoothing=case.smoothing)
            scaler.scale(loss / case.micro_batches).backward()
            losses[-1] += loss.item() / case.micro_batches
        case.clip(network.parameters())
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
        if average is not None:
            average.update_parameters(network)
        if update + 1 in KEPT:
            weights.append(flat(network))
            others += evaluated(network, optimizers[0], average)
    made = {"rates": np.multiply(case.shares, peaks[0]), "losses": np.array(losses), "weights": np.stack(weights)}
    if others:
        made["evaluated"] = np.stack(others)
    return {**made, "scales": np.array(scales)} if case.scaled else made


def main() -> None:
    problem = drawn()
    arrays = {**problem, "kept": np.array(KEPT), "overflows": np.array(OVERFLOWS)}
    chosen = sys.argv[1:]
    for name, case in CASES.items():
        if chosen and name not in chosen:
            continue
        with case.inside():
            made = trained(case, problem)
        arrays.update({f"{name}.{key}": values for key, values in made.items()})
        print(f"{name}: {made['losses'][0]:.4f} to {made['losses'][-1]:.4f}")
    for name, made in torch_ranks.cases(problem, chosen):
        arrays.update({f"{name}.{key}": values for key, values in made.items()})
    if not chosen:
        save_file(arrays, FILE, metadata={name: version(name) for name in ("torch", "schedulefree")})


if __name__ == "__main__":
    main()
