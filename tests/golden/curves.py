"""Loss curves of each method, from the same parts a job uses. `python -m tests.golden.curves` writes them anew.

Numerics may change only with a reason, which belongs into the commit that changes a curve.
"""

import tempfile
from itertools import islice
from pathlib import Path

from hydra import compose, initialize_config_dir

from msaccel.config import compose as composing
from msaccel.files import CONF

FOLDER = Path(__file__).parent
SMALL = [
    "data=synthetic",
    "data.train_size=600",
    "model=mlp",
    "train.batch_size=16",
    "train.epochs=5",
    "optimizer.lr=0.005",
]
CURVES = {
    "none": [],
    "accum": ["accel=accum"],
    "accum-growing": ["accel=accum", "accel.accum.steps=2", "accel.accum.grow_at=[0.4]", "accel.accum.growth=4"],
    "clip": ["accel=clip", "accel.clip.max_norm=0.1"],
    "clip-fp16": ["accel=clip", "accel.clip.max_norm=0.1", "precision=fp16", "loss_scale.mode=dynamic"],
    "centralize": ["accel=centralize"],
    "sam": ["accel=sam"],
    "adasum": ["accel=adasum", "device=cpu4", "accel.adasum.scope=rank"],
    "localsgd": ["accel=localsgd", "device=cpu4", "accel.localsgd.every=5", "accel.localsgd.start=0.1"],
    "resize": [
        "accel=resize",
        "model=resnet50",
        "model.depth=20",
        "model.image_size=16",
        "model.norm=group",
        "data.train_size=160",
    ],
    "powersgd": ["accel=powersgd", "device=cpu4", "accel.powersgd.start=5"],
    "dimreduce": [
        "accel=dimreduce",
        "train.epochs=6",
        "accel.dimreduce.components=4",
        "accel.dimreduce.snapshot.count=8",
        "accel.dimreduce.accum_steps=15",
    ],
}


def curve(name: str) -> list[float]:
    """The loss of the first updates of all stages; of the second alone for dimension reduction."""
    from msaccel.distributed.communicator import SINGLE_PROCESS
    from msaccel.step.batch_norm import RunningStatistics
    from msaccel.training.builder import Builder, build_network, prepare_device
    from msaccel.training.job import load_data
    from msaccel.training.metrics import MetricAccumulator
    from msaccel.training.plan import Plan

    composing.register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = composing.typed(compose("config", overrides=[*SMALL, *CURVES[name]]))
    prepare_device(config.device, config.seed)
    data = load_data(config)
    plan = Plan(config, len(data.train))
    network, losses = build_network(config), []
    with tempfile.TemporaryDirectory() as folder:
        statistics = RunningStatistics(network, range(config.device.ranks), SINGLE_PROCESS)
        builder = Builder(network, config, SINGLE_PROCESS, statistics, Path(folder))
        samples = builder.epoch_samples(plan, data.train)
        for stage in builder.stages(plan):
            if name == "dimreduce":
                losses.clear()
            stage.begin()
            epochs, sampler = range(stage.budget.epochs), stage.budget.sampler
            updates = ((samples.of(epoch), ranks) for epoch in epochs for ranks in sampler.epoch(epoch))
            length = 50 if name != "dimreduce" else stage.budget.updates
            for done, (train, ranks) in enumerate(islice(updates, length)):
                windows = [[train.batch(indices) for indices in micro_batches] for micro_batches in ranks]
                metrics = MetricAccumulator()
                metrics.add(stage.update.at(done, stage.budget.updates)(windows, plan.rate(stage.budget, done)))
                losses.append(metrics.read().loss)
                stage.after(done + 1)
    return losses[:5] if name == "dimreduce" else losses


def read(name: str) -> list[float]:
    return [float(line.split()[1]) for line in (FOLDER / f"{name}.txt").read_text().splitlines()]


if __name__ == "__main__":
    for name in CURVES:
        lines = [f"{update} {loss:.6f}\n" for update, loss in enumerate(curve(name), 1)]
        (FOLDER / f"{name}.txt").write_text("".join(lines))
        print(name, lines[0].strip(), "…", lines[-1].strip())
