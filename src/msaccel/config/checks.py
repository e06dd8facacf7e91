"""Checks of settings against each other, for values that are valid alone but contradict each other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from importlib.util import find_spec

from msaccel.accel import chosen, steps
from msaccel.config.derived import arithmetic, global_batch, transform
from msaccel.config.groups import GROUPS
from msaccel.config.overrides import keys_set_by
from msaccel.schema import Config, DeviceSettings, ResNetSettings, TrapezoidSettings


def refusals(config: Config) -> list[str]:
    """A sentence for each contradiction between settings that are valid by themselves."""
    return [*_contradictions(config), *_method_refusals(config)]


def without_effect(config: Config, overrides: Iterable[str]) -> list[str]:
    """A sentence for each key that the user has set although these settings never use it."""
    idle: dict[str, str] = {}
    mode = config.loss_scale.mode
    if mode == "none":
        idle |= dict.fromkeys(("loss_scale.init", "loss_scale.max_consecutive"), "loss_scale.mode=none")
    if mode != "dynamic":
        idle["loss_scale.growth_interval"] = f"loss_scale.mode={mode}"
    if config.precision != "bf16":
        idle["kernels.emulate_bf16"] = f"precision={config.precision}"
    idle |= config.data.without_effect()
    idle |= config.optimizer.without_effect()
    for _, method, settings in chosen(config):
        idle |= method.without_effect(settings, config)
    return [f"{key} has no effect with {idle[key]}; leave it out." for key in keys_set_by(overrides) if key in idle]


def _contradictions(config: Config) -> Iterator[str]:
    model, data, train = config.model.name, config.data.name, config.train
    fitting = transform(config.model, config.data)
    if not fitting:
        readable = [name for name, settings in GROUPS["data"].items() if transform(config.model, settings)]
        yield f"model={model} cannot read data={data}; write data= with one of {', '.join(readable)}."
    elif config.data.transform not in ("auto", fitting):
        yield (
            f"data.transform={config.data.transform} does not produce the input of model={model} from data={data}; "
            f"write data.transform={fitting} or data.transform=auto."
        )
    yield from config.data.refusals(config.model)
    yield from config.model.refusals()
    yield from config.optimizer.refusals(config)
    if isinstance(config.model, ResNetSettings):
        yield from _resnet(config.model, config)
    if classes := config.data.class_count():
        yield from too_few_classes(config, classes)
    if train.epochs is None and train.max_updates is None:
        yield "train.epochs=null leaves the job without an end; write train.max_updates=1000 or train.epochs=3."
    if train.stop_at_target and train.target_accuracy is None:
        yield "train.stop_at_target=true has no target; write train.target_accuracy=0.98 or leave it out."
    if train.tta != "none" and len(config.model.input_shape()) == 1:
        yield f"train.tta={train.tta} mirrors images, and model={model} reads a text; write train.tta=none."
    if config.tracking.system_metrics and find_spec("psutil") is None:
        yield "tracking.system_metrics=true needs psutil; run pip install psutil first, or leave it out."
    yield from _precision(config)
    yield from _device(config.device)
    if config.sweep.retries and config.device.server_rank is not None:
        yield (
            f"sweep.retries={config.sweep.retries} has no effect with device.server_rank, since all servers would have "
            "to be restarted together; leave it out."
        )
    if size := config.data.train_count():
        yield from too_few_samples(config, size)


def _device(device: DeviceSettings) -> Iterator[str]:
    if device.simulate == "always" and device.target == "CPU" and device.ranks == 1:
        yield "device.simulate=always has nothing to simulate on one CPU rank; write device=cpu4 or leave it out."
    several = {"device.server_rank": device.server_rank, "device.master": device.master}
    given = [f"{key}={value}" for key, value in several.items() if value is not None]
    if given and device.servers == 1:
        yield f"{given[0]} has no effect with the single server of device={device.name}; leave it out."
        return
    if device.rank_table is not None:
        given.append(f"device.rank_table={device.rank_table}")
    if given and device.simulate == "always":
        yield f"{given[0]} has no effect with device.simulate=always, which runs in one process; leave it out."
        return
    if device.servers > 1:
        if device.server_rank is not None and device.server_rank >= device.servers:
            yield (
                f"device.server_rank={device.server_rank} is beyond the {device.servers} servers of "
                f"device={device.name}; write a number from 0 to {device.servers - 1}."
            )
        if device.server_rank is not None and device.master is None and device.rank_table is None:
            yield "device.server_rank needs the address where the servers meet; write device.master=HOST:PORT too."
        if device.server_rank is None and device.master is not None:
            yield "device.master is given without the rank of this server; write device.server_rank=0 on the first."
    if device.rank_table is not None and device.target != "Ascend":
        yield f"device.rank_table has no effect with device={device.name}, only with Ascend devices; leave it out."
    if device.rank_table is not None and device.master is not None:
        yield "device.rank_table and device.master both say how ranks find each other; keep one of them."


def _precision(config: Config) -> Iterator[str]:
    scale = config.loss_scale
    if config.precision == "bf16" and not config.device.on_cpu:
        yield (
            f"precision=bf16 is computed by msaccel's operators for the CPU, not on device={config.device.name}; write "
            "precision=fp32 or precision=fp16."
        )
    elif config.precision == "bf16" and config.kernels.use not in ("auto", "onednn"):
        yield (
            f"precision=bf16 has no effect with kernels.use={config.kernels.use}; write kernels.use=auto or "
            "precision=fp32."
        )
    if scale.mode != "none" and config.train.on_nonfinite != "stop":
        yield (
            f"train.on_nonfinite={config.train.on_nonfinite} has no effect with loss_scale.mode={scale.mode}, which "
            "skips such updates up to loss_scale.max_consecutive in a row; leave one of the two out."
        )
    if scale.mode == "static" and scale.init == 1:
        yield (
            "loss_scale.init=1 with loss_scale.mode=static scales nothing; write loss_scale.init=1024 or "
            "loss_scale.mode=none."
        )


def _resnet(model: ResNetSettings, config: Config) -> Iterator[str]:
    size = config.data.image_size
    if size and model.image_size != size:
        yield (
            f"model.image_size={model.image_size} does not fit data={config.data.name}, whose images are "
            f"{size} × {size} once transformed; write model.image_size={size} or leave it out."
        )
    if not model.has_bottlenecks and model.version == "v1":
        yield (
            f"model.version=v1 has no effect with model.depth={model.depth}, whose blocks do not begin with a 1 × 1 "
            "convolution; leave it out."
        )


def too_few_classes(config: Config, classes: int) -> Iterator[str]:
    """A sentence if the network has fewer classes than the data."""
    if config.model.classes is not None and config.model.classes < classes:
        yield (
            f"model.classes={config.model.classes} is fewer than the {classes} classes of data={config.data.name}; "
            f"write model.classes={classes}."
        )


def too_few_samples(config: Config, size: int) -> Iterator[str]:
    """A sentence for each setting that does not fit a training set of this size, validation samples included."""
    limit, fraction = config.data.limit_train, config.data.val_fraction
    if limit is not None and limit > size:
        yield (
            f"data.limit_train={limit} is more than the {size} samples of data={config.data.name}; "
            f"write null or at most {size}."
        )
        return
    size = limit or size
    held_out = round(size * fraction)
    if fraction and not 0 < held_out < size:
        yield (
            f"data.val_fraction={fraction:g} of {size} samples leaves the training or the validation set empty; "
            "write a fraction that puts a sample in both."
        )
        return
    size -= held_out
    batch = global_batch(config)
    if batch > size:
        yield (
            f"train.batch_size={config.train.batch_size} makes a global batch of {batch} "
            f"({arithmetic(config)}), more than the {size} training samples; write a smaller train.batch_size"
            f"{' or fewer accumulation steps' if steps(config) > 1 else ''}."
        )
        return
    yield from _schedule(config, -(-size // batch))


def _schedule(config: Config, updates_per_epoch: int) -> Iterator[str]:
    """A sentence for each length that is not shorter than the job, which would cut the schedule off."""
    schedule, train = config.schedule, config.train
    scheduled = train.epochs
    for _, method, settings in chosen(config):
        if "schedule.warmup" in method.without_effect(settings, config):
            return  # no stage follows the schedule
        scheduled = scheduled and method.scheduled_epochs(settings, scheduled)
    epochs = [scheduled, train.max_updates and train.max_updates / updates_per_epoch]
    job_end = 1.0 if schedule.unit == "fraction" else min((float(e) for e in epochs if e), default=math.inf)
    milestones = [("milestones", milestone) for milestone in getattr(schedule, "milestones", [])]
    for key, length in [("warmup", schedule.warmup), *milestones]:
        if length >= job_end:
            yield (
                f"schedule.{key}={length:g} lies outside the job, which ends at {job_end:g} "
                f"(schedule.unit={schedule.unit}); write a value below {job_end:g}."
            )
    rest = job_end - schedule.warmup
    if isinstance(schedule, TrapezoidSettings) and 0 < rest < schedule.decay * (1 - 1e-5):  # as the sentence rounds it
        yield (
            f"schedule.decay={schedule.decay:g} begins before the warm-up ends, since the job ends at {job_end:g} "
            f"(schedule.unit={schedule.unit}); write {rest:g} or less."
        )


def _method_refusals(config: Config) -> Iterator[str]:
    claimed = {"evaluate": f"optimizer={config.optimizer.name}"} if config.optimizer.own_weights else {}
    for name, method, settings in chosen(config):
        if other := claimed.get(method.slot):
            yield f"{other} and accel={name} both fill the slot '{method.slot}' of an update; keep one of them."
        claimed[method.slot] = f"accel={name}"
        yield from method.refusals(settings, config)
