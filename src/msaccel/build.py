"""The update of a job, put together from what the configuration names."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from mindspore import nn

from msaccel import kernels, models, optimizers
from msaccel.accel import adasum, methods
from msaccel.accel.adasum.update import AdasumUpdate
from msaccel.accel.dimreduce.stages import Subspace
from msaccel.accel.dimreduce.update import SubspaceUpdate
from msaccel.checks import steps
from msaccel.guard import NO_LIMIT, Policy
from msaccel.plan import Plan
from msaccel.precision import compute_in
from msaccel.settings import Config
from msaccel.stage import Stage
from msaccel.subspace.bfgs import Constants
from msaccel.update import Update


def build_network(config: Config) -> nn.Cell:
    """The network, computing in the job's precision and with its kernels; its parameters are float32."""
    on_cpu = config.device.target == "CPU" or config.device.simulated
    kernels.use(kernels.choose(config.kernels.use, on_cpu))
    return compute_in(models.build(config.model), config.precision)


def build_update(network: nn.Cell, config: Config) -> Update:
    """The update of the network's weights, with every slot filled as `accel` says."""
    accum = config.accel.get("accum")
    common: dict[str, Any] = {
        "undivided": accum is not None and accum.reduction == "sum",
        "policy": guard_policy(config),
        "clip": build_clip(config),
        "lower_precision": config.precision != "fp32",
    }
    batch_size, wanted = config.train.batch_size, config.accel.get("adasum")
    if wanted is None:
        single = steps(config) * config.device.ranks == 1
        optimizer = optimizers.build(network.trainable_params(), config.optimizer)
        return Update(network, optimizer, batch_size, single=single, **common)
    parts = adasum.parts(wanted, config.device)
    delta = wanted.apply == "delta"
    own = [optimizers.build(network.trainable_params(), config.optimizer) for _ in (parts if delta else parts[:1])]
    weights = {id(parameter) for parameter in network.trainable_params()}
    for part, optimizer in enumerate(own):
        for parameter in optimizer.get_parameters():
            if id(parameter) not in weights:
                parameter.name = f"part{part}.{parameter.name}"
    return AdasumUpdate(network, own, batch_size, parts, delta, **common)


def build_stages(network: nn.Cell, config: Config, plan: Plan, folder: Path) -> list[Stage]:
    """The stages of the job; dimension reduction has two and writes snapshots and its matrix into the folder."""
    wanted, legs = config.accel.get("dimreduce"), plan.legs
    if wanted is None:
        return [Stage(legs[0], build_update(network, config))]
    subspace = Subspace(wanted, network, folder)
    optimizer = optimizers.build(network.trainable_params(), config.optimizer)
    inner = Update(
        network,
        optimizer,
        config.train.batch_size,
        single=False,
        policy=guard_policy(config),
        lower_precision=config.precision != "fp32",
    )
    trials = wanted.line_search.max_trials
    constants = Constants(wanted.rho, wanted.gamma, wanted.alpha, wanted.sigma, trials, wanted.weight_decay)
    clip = config.accel.get("clip")
    second = SubspaceUpdate(inner, subspace.layout, constants, clip.max_norm if clip else None)
    *first, last = legs
    return [*(subspace.first(leg, build_update(network, config)) for leg in first), subspace.second(last, second)]


def guard_policy(config: Config) -> Policy:
    scale = config.loss_scale
    if scale.mode == "none":
        return Policy(limit=1 if config.train.on_nonfinite == "stop" else NO_LIMIT)
    return Policy(scale.max_consecutive, scale.init, scale.growth_interval if scale.mode == "dynamic" else None)


def build_clip(config: Config) -> nn.Cell | None:
    """The method in the slot `clip`, whichever it is: `build(settings)` of its module `cell`."""
    for name, method in methods().items():
        if name in config.accel and method.SLOT == "clip":
            cell: nn.Cell = importlib.import_module(f"msaccel.accel.{name}.cell").build(config.accel[name])
            return cell
    return None
