"""A job that goes on from a checkpoint ends as if nothing had been: the same metrics and the same bits.

The undisturbed job writes a checkpoint after every update, and a copy of its folder at some of them is what a killed
job would have left. It is resumed with a network and an update built anew.
"""

import gc
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from mindspore import Tensor, nn
from safetensors.numpy import load_file

from msaccel.distributed.communicator import SINGLE_PROCESS
from msaccel.schema import Config
from msaccel.tracking.mlflow_run import Run
from tests.conftest import assert_same_bits
from tests.running import TIMES

pytestmark = pytest.mark.usefixtures("graph_mode")

Point = tuple[str, int, float]
UNFLUSHED = 2  # updates: what was logged in the last ones before the kill had not come into MLflow


@dataclass
class Client:
    """MLflow as far as a run that trains needs it."""

    points: list[Point] = field(default_factory=list)

    def log_batch(self, run_id: str, metrics: list = [], tags: list = []) -> None:  # noqa: B006
        self.points += [(metric.key, metric.step, metric.value) for metric in metrics]


class AtUpdates(Run):
    """Flushes when it is told, not by the clock."""

    def metrics(self, update: int, values: dict[str, float]) -> None:
        self._flushed = math.inf
        super().metrics(update, values)
        if update % UNFLUSHED == 0:
            self.flush()


@dataclass
class Job:
    """One job in this process."""

    overrides: tuple[str, ...]
    folder: Path
    composed: Callable
    network: Callable | None = None  # takes the place of the model
    client: Client = field(default_factory=Client)

    def train(self, copies: dict[int, Path], logged: set[tuple[str, int]] | None = None) -> None:
        """Trains to the end, from the folder's newest checkpoint with `logged`; copies the folder at some updates."""
        import mindspore as ms

        from msaccel.step.batch_norm import RunningStatistics
        from msaccel.tracking.progress_bar import ProgressBar
        from msaccel.training.builder import Builder, build_network
        from msaccel.training.job import load_data
        from msaccel.training.loop import Training
        from msaccel.training.plan import Plan
        from msaccel.training.progress import Counts
        from msaccel.training.resume_checkpoints import ResumeCheckpoints

        client, folder = self.client, self.folder

        class Copying(ResumeCheckpoints):
            def write(self, updates: int, *what: object) -> None:
                super().write(updates, *what)
                if updates in copies:
                    shutil.copytree(folder, copies[updates])

        gc.freeze()
        config = self.composed(*self.overrides, "checkpoint.every_updates=1")
        ms.set_seed(config.seed)
        data = load_data(config)
        plan, network = Plan(config, len(data.train)), (self.network or build_network)(config)
        statistics = RunningStatistics(network, range(config.device.ranks), SINGLE_PROCESS)
        builder = Builder(network, config, SINGLE_PROCESS, statistics, folder)
        keeper = Copying(config.checkpoint, folder, SINGLE_PROCESS, {"data": data.digest})
        saved = None if logged is None else keeper.read()
        assert (saved is None) == (logged is None)
        run = AtUpdates(client, "", logged or set())
        stages = builder.stages(plan)
        with ProgressBar("", silent=True) as bar:
            Training(
                plan=plan,
                data=data,
                epoch_samples=builder.epoch_samples(plan, data.train),
                network=network,
                stages=stages,
                comm=SINGLE_PROCESS,
                statistics=statistics,
                run=run,
                bar=bar,
                folder=folder,
                resume_checkpoints=keeper,
                resume_state=saved,
                counts=Counts.of(saved.facts, plan.total_updates) if saved else Counts(),
                method_metrics=builder.method_metrics(),
                evaluation_weights=builder.evaluation_weights(plan, stages),
            ).train()
        run.flush()

    def points(self) -> list[Point]:
        """All metrics but times, sorted."""
        return sorted(p for p in self.client.points if not p[0].startswith(TIMES))


# Micro-batches of a multiple of 16: for others MindSpore's own loss, which serves where there is no compiler, has other
# last bits in some of a process's first calls.
MLP = ("model=mlp", "data=synthetic", "data.train_size=336", "data.test_size=70", "train.epochs=2", "tracking.every=3")
TWO_RANKS = ("device=cpu4", "device.ranks_per_server=2", "device.simulate=always", "train.batch_size=16")
# Overrides, and the updates after which the job was killed: between log points, at the ends of an epoch and of the job.
JOBS = {
    "none": (
        ("model=lenet", *MLP[1:], "schedule=cosine", "train.target_accuracy=0.05", "data.val_fraction=0.1428"), (4, 18)
    ),
    "evaluations within an epoch": (
        (*MLP, *TWO_RANKS, "data.train_size=112", "train.eval_every=0.3", "train.target_accuracy=0.05",
         "accel=[localsgd,average]", "accel.localsgd.every=2", "accel.average.every=1"), (5,),
    ),
    "accum and clip in fp16": (
        (*MLP, "accel=[accum,clip]", "accel.accum.steps=2", "precision=fp16", "loss_scale.mode=dynamic",
         "loss_scale.init=1e16", "loss_scale.growth_interval=2", "loss_scale.max_consecutive=1000"), (7,),
    ),
    "bf16": (
        ("model=resnet50", "model.depth=8", "model.image_size=16", "data=synthetic", "data.train_size=112",
         "data.test_size=32", "train.epochs=2", "precision=bf16", "kernels.emulate_bf16=true"), (3,),
    ),
    "adasum of steps with a schedule": (
        (*MLP, *TWO_RANKS, "accel=adasum", "accel.adasum.scope=rank", "schedule=linear", "optimizer=adam",
         "optimizer.lr=0.001"), (11,),
    ),
    "dimension reduction": (
        (*MLP, "data.train_size=208", "train.epochs=4", "accel=[clip,dimreduce]", "accel.clip.max_norm=0.1",
         "accel.dimreduce.components=5", "accel.dimreduce.snapshot.count=6", "accel.dimreduce.accum_steps=2",
         "optimizer=sgd"), (11, 17),
    ),
    "batch norm of virtual ranks": ((*MLP, *TWO_RANKS, "data.train_size=112", "optimizer.nesterov=true"), (3,)),
    "batch norm of sam": (
        (*MLP, *TWO_RANKS, "data.train_size=112", "accel=[accum,sam,clip]", "accel.accum.steps=2"), (3,),
    ),
    "batch norm of local sgd": (
        (*MLP, *TWO_RANKS, "data.train_size=112", "accel=[localsgd,clip]", "accel.localsgd.every=2",
         "accel.localsgd.start=0.25", "accel.clip.max_norm=0.1"), (5,),
    ),
    "batch norm of powersgd": (
        (*MLP, *TWO_RANKS, "data.train_size=112", "accel=[powersgd,clip]", "accel.powersgd.start=2",
         "accel.clip.max_norm=0.1"), (5,),
    ),
    "batch norm of averaged weights": (
        (*MLP, *TWO_RANKS, "data.train_size=112", "accel=[accum,average]", "accel.accum.steps=2",
         "accel.average.form=lawa", "accel.average.last=2", "accel.average.every=1", "accel.average.start=0.3"), (3,),
    ),
    "batch norm with schedulefree": (
        (*MLP, *TWO_RANKS, "data.train_size=112", "optimizer=schedulefree", "schedule.warmup=0.3"), (5,),
    ),
    **{
        f"batch norm with {name}": ((*MLP, "data.train_size=112", f"optimizer={name}"), (3,))
        for name in ("lars", "lamb", "lion", "muon")
    },
    "batch norm with shampoo": ((*MLP, "data.train_size=112", "optimizer=shampoo", "optimizer.interval=2"), (3,)),
    "batch norm of frozen layers": (
        (*MLP, "data.train_size=112", "accel=freeze", "accel.freeze.start=0.3", "optimizer=adamw"), (4,),
    ),
    "frozen at random": (
        (*MLP, "accel=[freeze,accum]", "accel.accum.steps=2", "accel.freeze.form=boost", "accel.freeze.whole=0.3"),
        (5,),
    ),
    "windows that grow": (
        (*MLP, "accel=[freeze,accum,clip]", "accel.accum.steps=2", "accel.accum.grow_at=[0.5]", "accel.accum.growth=2",
         "accel.freeze.form=boost", "accel.freeze.whole=0.3", "accel.clip.max_norm=0.1", "schedule=cosine",
         "train.batch_size=16", "train.epochs=4"), (25,),
    ),
    "lessbn and centralize": (
        ("model=resnet50", "model.depth=8", "model.image_size=16", "data=synthetic", "data.train_size=48",
         "data.test_size=20", "train.batch_size=16", "train.epochs=2", "tracking.every=1",
         "accel=[lessbn,centralize]"), (4,),
    ),
    "images that grow": (
        (*MLP, *TWO_RANKS, "data.train_size=112", "train.epochs=3", "accel=[resize,accum]", "accel.accum.steps=2",
         "accel.resize.delay_fraction=0"), (3,),
    ),
}  # fmt: skip
# What has no state of its own, or is resumed in another test, too, as Muon in tests/models/test_airbench.py.
SELDOM = (
    "bf16", "batch norm with lars", "batch norm with lamb", "batch norm with lion", "batch norm with muon",
    "frozen at random", "lessbn and centralize",
)  # fmt: skip
# Further updates after which jobs of `make soak` are killed.
ELSEWHERE = {
    "evaluations within an epoch": (1, 2), "batch norm of local sgd": (1,), "batch norm of powersgd": (1,),
    "batch norm of averaged weights": (2,), "batch norm with schedulefree": (1,), "windows that grow": (4,),
    "images that grow": (1,),
}  # fmt: skip
CASES = [
    *(pytest.param(name, JOBS[name][1], id=name, marks=pytest.mark.soak if name in SELDOM else ()) for name in JOBS),
    *(pytest.param(name, kills, id=f"{name}, elsewhere", marks=pytest.mark.soak) for name, kills in ELSEWHERE.items()),
]


class AnySize(nn.Cell):
    """For images (n, 1, h, w) of any height and width."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.dense = nn.BatchNorm2d(1), nn.Dense(1, 10)

    def construct(self, images: Tensor) -> Tensor:
        return self.dense(self.norm(images).mean((2, 3)))


def of_any_size(config: Config) -> nn.Cell:
    return AnySize()


def with_batch_norm(config: Config) -> nn.Cell:
    dense = (nn.Dense(784, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dense(16, 12), nn.ReLU(), nn.Dense(12, 10))
    return nn.SequentialCell(nn.Flatten(), *dense)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kills"), CASES)
def test_a_resumed_job_ends_as_the_undisturbed_one(composed: Callable, tmp_path: Path, name: str, kills: tuple) -> None:
    overrides, _ = JOBS[name]
    network = {"images that grow": of_any_size}.get(name, with_batch_norm if "batch norm" in name else None)
    through = Job(overrides, tmp_path / "through", composed, network)
    through.folder.mkdir()
    copies = {update: tmp_path / f"killed-{update}" for update in kills}
    through.train(copies)
    for update in kills:
        logged = {(name, step) for name, step, _ in through.client.points if step <= update + 2}
        unflushed = {(name, step) for name, step in logged if step > update - update % UNFLUSHED}
        resumed = Job(overrides, copies[update], composed, network)
        resumed.client.points = [p for p in through.client.points if p[:2] in logged - unflushed]
        resumed.train({}, logged - unflushed)
        assert resumed.points() == through.points()
        for name in ("last", "best"):
            files = [load_file(job.folder / f"{name}.safetensors") for job in (resumed, through)]
            assert_same_bits(*files)
