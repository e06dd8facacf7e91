"""PyTorch, in the loop that suits it best, on the samples, order and recipe of a job of msaccel's.

`torch_job.py CASE --trial` finds the best settings of its eager mode, `torch_job.py CASE --setting
LAYOUT,THREADS,OPTIMIZER` trains with one; `--mode compile` and `--mode bf16` compile the network, or compute it under
bfloat16 autocast. Images stay bytes, and a table makes them floats when a batch is made, as in msaccel: for PyTorch too
that is several times faster than to index a tensor of floats. Nothing is logged, and no loss is read before the end.
"""

from __future__ import annotations

import argparse
import itertools
import json
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from cases import CASES
from measure import load_samples, milliseconds
from peer_loop import train
from torch import Tensor, nn
from torch_networks import build

from msaccel import schema
from msaccel.config.compose import from_overrides
from msaccel.data.dataset import DatasetSplits

LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
EAGER, COMPILE, BF16 = "eager", "compile", "bf16"


@dataclass(frozen=True)
class Setting:
    """What is tried: the layout of tensors, threads, and SGD in PyTorch's default form or as one kernel (`fused`)."""

    layout: str
    threads: int
    optimizer: str

    def __str__(self) -> str:
        return f"{self.layout},{self.threads},{self.optimizer}"


class Trainer:
    """One update a call, on the mean cross entropy, with the job's optimizer."""

    def __init__(self, config: schema.Config, setting: Setting, mode: str = EAGER) -> None:
        torch.set_num_threads(setting.threads)
        torch.manual_seed(config.seed)
        network = build(config.model).train()
        self.images = config.model.name != "gpt"
        self.layout = LAYOUTS[setting.layout]
        if self.images:
            network = network.to(memory_format=self.layout)
        self.parameters = [weight for weight in network.parameters() if weight.requires_grad]
        self.network = torch.compile(network) if mode == COMPILE else network
        self.autocast = torch.autocast("cpu", torch.bfloat16, enabled=mode == BF16)
        self.optimizer = self.build_optimizer(config.optimizer, {"fused": True} if setting.optimizer == "fused" else {})
        self.max_norm = config.accel["clip"].max_norm if "clip" in config.accel else None
        self.loss = nn.CrossEntropyLoss()

    def build_optimizer(self, chosen: schema.OptimizerSettings, fused: dict[str, bool]) -> torch.optim.Optimizer:
        if isinstance(chosen, schema.MomentumSettings):
            return torch.optim.SGD(self.parameters, chosen.lr, chosen.momentum, **fused)
        assert isinstance(chosen, schema.AdamSettings)
        matrices, vectors = ([p for p in self.parameters if (p.ndim > 1) == matrix] for matrix in (True, False))
        groups = [{"params": matrices, "weight_decay": chosen.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, chosen.lr, (chosen.beta1, chosen.beta2), chosen.eps, **fused)

    def __call__(self, samples: Tensor, labels: Tensor) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        if self.images:
            samples = samples.contiguous(memory_format=self.layout)
        with self.autocast:
            logits = self.network(samples)
        loss: Tensor = self.loss(logits.float().flatten(0, -2), labels.flatten())
        loss.backward()
        if self.max_norm:
            nn.utils.clip_grad_norm_(self.parameters, self.max_norm)
        self.optimizer.step()
        return loss


def make_batch(data: DatasetSplits, indices: np.ndarray) -> tuple[Tensor, Tensor]:
    samples, labels = data.train.batch(indices)
    return torch.from_numpy(samples), torch.from_numpy(labels.astype(np.int64))


def trial(config: schema.Config, data: DatasetSplits, steps: int) -> Setting:
    """The fastest setting on one batch: layouts and threads first, then the optimizer; each the best of two."""
    batch = make_batch(data, np.arange(config.train.batch_size))

    def fastest(candidates: list[Setting]) -> Setting:
        times: dict[Setting, float] = {}
        for setting in candidates * 2:
            trainer = Trainer(config, setting)
            taken = milliseconds(partial(trainer, *batch), steps, Tensor.item)
            times[setting] = min(taken, times.get(setting, taken))
        return min(times, key=times.__getitem__)

    layouts = LAYOUTS if config.model.name != "gpt" else ["contiguous"]
    best = fastest([Setting(layout, threads, "default") for layout, threads in itertools.product(layouts, (1, 2))])
    return fastest([best, replace(best, optimizer="fused")])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=CASES)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--trial", action="store_true")
    chosen.add_argument("--setting")
    parser.add_argument("--mode", choices=(EAGER, COMPILE, BF16), default=EAGER)
    given = parser.parse_args()
    case = CASES[given.case]
    config = from_overrides(case.overrides)
    data = load_samples(config)
    if given.trial:
        result: dict[str, object] = {"setting": str(trial(config, data, case.trial)), "version": torch.__version__}
    else:
        layout, threads, optimizer = given.setting.split(",")
        trainer = Trainer(config, Setting(layout, int(threads), optimizer), given.mode)
        result = {**train(case, config, data, trainer, make_batch, Tensor.item)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
