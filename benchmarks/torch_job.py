"""PyTorch eager, in the loop that suits it best, on the images, order and recipe of a job of msaccel's.

With `precision=bf16` it computes under autocast.

`torch_job.py CASE --trial` finds the best of its settings, `torch_job.py CASE --setting LAYOUT,THREADS,OPTIMIZER`
trains with one. Images stay bytes, and a table makes them floats when a batch is made, as in msaccel: for PyTorch
too that is several times faster than to index a tensor of floats. Nothing is logged, and no loss is read before the
end.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from cases import CASES
from measure import milliseconds, peak_mb
from torch import Tensor, nn
from torch_networks import build

from msaccel import schema
from msaccel.config.compose import from_overrides
from msaccel.config.derived import transform
from msaccel.data.dataset import DatasetSplits
from msaccel.data.load import load_datasets
from msaccel.training.plan import Plan

LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


@dataclass(frozen=True)
class Setting:
    """What is tried: the layout of tensors, threads, and SGD in PyTorch's default form or as one kernel (`fused`)."""

    layout: str
    threads: int
    optimizer: str

    def __str__(self) -> str:
        return f"{self.layout},{self.threads},{self.optimizer}"


class Trainer:
    """One update a call: SGD with momentum on the mean cross entropy."""

    def __init__(self, config: schema.Config, setting: Setting) -> None:
        torch.set_num_threads(setting.threads)
        torch.manual_seed(config.seed)
        assert isinstance(config.optimizer, schema.MomentumSettings)
        self.layout = LAYOUTS[setting.layout]
        self.network = build(config.model).to(memory_format=self.layout).train()
        rate, momentum = config.optimizer.lr, config.optimizer.momentum
        fused = {"fused": True} if setting.optimizer == "fused" else {}
        self.optimizer = torch.optim.SGD(self.network.parameters(), rate, momentum, **fused)
        self.loss = nn.CrossEntropyLoss()
        self.autocast = config.precision == "bf16"

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            logits = self.network(images.contiguous(memory_format=self.layout))
        loss: Tensor = self.loss(logits.float(), labels)
        loss.backward()
        self.optimizer.step()
        return loss


def load_images(config: schema.Config) -> DatasetSplits:
    """The job's own, with labels as PyTorch wants them."""
    data = replace(config.data, transform=transform(config.model, config.data))
    loaded = load_datasets(data, config.seed, config.model.input_shape())
    return replace(loaded, train=replace(loaded.train, labels=loaded.train.labels.astype(np.int64)))


def make_batch(data: DatasetSplits, indices: np.ndarray) -> tuple[Tensor, Tensor]:
    images, labels = data.train.batch(indices)
    return torch.from_numpy(images), torch.from_numpy(labels)


def trial(config: schema.Config, data: DatasetSplits, steps: int) -> Setting:
    """The fastest setting on one batch: layouts and threads first, then the optimizer; each the best of two."""
    batch = make_batch(data, np.arange(config.train.batch_size))

    def fastest(candidates: list[Setting]) -> Setting:
        times: dict[Setting, float] = {}
        for setting in candidates * 2:
            trainer = Trainer(config, setting)
            taken = milliseconds(lambda trainer=trainer: trainer(*batch), steps, Tensor.item)
            times[setting] = min(taken, times.get(setting, taken))
        return min(times, key=times.__getitem__)

    best = fastest([Setting(layout, threads, "default") for layout, threads in itertools.product(LAYOUTS, (1, 2))])
    return fastest([best, replace(best, optimizer="fused")])


def train(config: schema.Config, data: DatasetSplits, setting: Setting, warm_up: int, bare: int) -> dict[str, float]:
    """The job's updates; the clock starts after `warm_up` of them."""
    trainer, plan = Trainer(config, setting), Plan(config, len(data.train))
    (budget,) = plan.budgets
    every = (indices for epoch in range(budget.epochs) for ((indices,),) in budget.sampler.epoch(epoch))
    first_s, samples, begun = 0.0, 0, time.perf_counter()
    for update, indices in enumerate(itertools.islice(every, budget.updates)):
        loss = trainer(*make_batch(data, indices))
        samples += len(indices)
        if update == 0:
            first_s = time.perf_counter() - begun
        if update + 1 == warm_up:
            samples, begun = 0, time.perf_counter()
    loss.item()
    seconds, peak = time.perf_counter() - begun, peak_mb()
    batch = make_batch(data, np.arange(config.train.batch_size))
    return {
        "samples_per_sec": samples / seconds,
        "bare_ms": milliseconds(lambda: trainer(*batch), bare, Tensor.item),
        "first_s": first_s,
        "peak_mb": peak,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=CASES)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--trial", action="store_true")
    chosen.add_argument("--setting")
    given = parser.parse_args()
    case = CASES[given.case]
    config = from_overrides(case.overrides)
    data = load_images(config)
    if given.trial:
        result: dict[str, object] = {"setting": str(trial(config, data, case.trial)), "version": torch.__version__}
    else:
        layout, threads, optimizer = given.setting.split(",")
        result = {**train(config, data, Setting(layout, int(threads), optimizer), case.warm_up, case.bare)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
