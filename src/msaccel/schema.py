"""Every key a user may set, with its type and range. The default values are in `conf/`.

Hydra merges the YAML of `conf/` into these dataclasses, so an unknown key or a wrong type fails before anything
starts. `setting(...)` beside a field gives the range that its type cannot express.
This module imports nothing heavy: the process that launches jobs never loads MindSpore.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from typing import Any, ClassVar

NORMAL_INIT = r"default|normal\((\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?\)"


@dataclass(frozen=True)
class Range:
    """The values a key may have; a bound of None means no bound."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    choices: tuple[Any, ...] | None = None
    pattern: str | None = None
    prose: bool = False  # text of any length, in no file's name
    example: str = ""


def setting(*, example: str = "", default: Any = MISSING, **bounds: Any) -> Any:
    """A dataclass field with a range. Its value comes from YAML unless `default` is given."""
    metadata = {"range": Range(example=example, **bounds)}
    return field(default="???" if default is MISSING else default, metadata=metadata)


def leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any, Range | None]]:
    """Every key with its dotted name, value and range, in the order of definition."""
    if is_dataclass(node) and not isinstance(node, type):
        for item in fields(node):
            value, name = getattr(node, item.name), f"{prefix}{item.name}"
            if is_dataclass(value) or (isinstance(value, dict) and "range" not in item.metadata):
                yield from leaves(value, f"{name}.")
            else:
                yield name, value, item.metadata.get("range")
    elif isinstance(node, dict):
        for name, value in node.items():
            yield from leaves(value, f"{prefix}{name}.")


@dataclass
class ModelSettings:
    """A network's keys.

    Attributes:
        transforms: values of `data.transform` that make the samples it reads; the first that a data set has is `auto`.
    """

    transforms: ClassVar[tuple[str, ...]] = ()
    name: str = setting()
    init: str = setting(pattern=NORMAL_INIT, example="default or normal(0.01)")
    classes: int | None = setting(at_least=2, example="null for as many as the data has, or 10")

    def input_shape(self) -> tuple[int, ...]:
        """The shape of a sample that it reads; of an image channels, height and width."""
        raise NotImplementedError

    def complete(self, data: DataSettings) -> None:
        """Sets the keys that are null to what the data says; what only its files say is set when they are read."""
        if self.classes is None:
            self.classes = data.class_count()

    def refusals(self) -> Iterator[str]:
        """A sentence for each of its keys that contradicts another one."""
        yield from ()


@dataclass
class LeNetSettings(ModelSettings):
    """LeNet5 of tutorial 000."""

    transforms = ("lenet32",)

    def input_shape(self) -> tuple[int, int, int]:
        return 1, 32, 32


@dataclass
class MlpSettings(ModelSettings):
    """The 784-512-512-10 network of tutorial 001."""

    transforms = ("mlp28",)

    def input_shape(self) -> tuple[int, int, int]:
        return 1, 28, 28


@dataclass
class ResNetSettings(ModelSettings):
    """The residual network of tutorials 003 and 004."""

    transforms = ("small", "imagenet")
    depth: int = setting(choices=(18, 34, 50, 101, 20, 32, 44, 56))
    norm: str = setting(choices=("batch", "group"))
    version: str = setting(choices=("v1", "v1.5"))
    stem: str = setting(choices=("auto", "imagenet", "small"))
    image_size: int | None = setting(at_least=8, example="32")

    @property
    def has_bottlenecks(self) -> bool:
        """Whether its blocks are of three convolutions, the first a 1 × 1."""
        return self.depth in (50, 101)

    def input_shape(self) -> tuple[int, int, int]:
        assert self.image_size is not None
        return 3, self.image_size, self.image_size

    def complete(self, data: DataSettings) -> None:
        super().complete(data)
        if self.image_size is None:
            self.image_size = data.image_size or 224


@dataclass
class DataSettings:
    """A data set's keys, and what is known of it before it is loaded.

    Attributes:
        transforms: values of `data.transform` that its samples can be given to networks by.
        image_size: height and width that these make of its images; None if that is up to the network.
        seeded: whether the job's seed draws its samples. Runs of different seeds have different ones, and may still be
            compared.
    """

    transforms: ClassVar[tuple[str, ...]] = ()
    image_size: ClassVar[int | None] = None
    seeded: ClassVar[bool] = False
    name: str = setting()
    transform: str = setting()
    limit_train: int | None = setting(at_least=1, example="null for all, or 1000")
    limit_eval: int | None = setting(at_least=1, example="null for all, or 1000")
    val_fraction: float = setting(at_least=0, below=1, example="0.1")

    def class_count(self) -> int | None:
        """The number of classes; None if only the files say it."""
        return None

    def train_count(self) -> int | None:
        """The number of training samples, validation samples included; None if only the files say it."""
        return None

    def refusals(self, model: ModelSettings) -> Iterator[str]:
        """A sentence for each of its keys that contradicts another one or does not fit the network."""
        yield from ()


@dataclass
class DownloadedDataSettings(DataSettings):
    """Files that are downloaded once, or the user's own."""

    root: str | None = setting()
    cache: str = setting()


@dataclass
class IdxDataSettings(DownloadedDataSettings):
    """MNIST, and data sets of its form and size: four idx files."""

    transforms = ("lenet32", "mlp28", "small")
    image_size = 32

    def class_count(self) -> int:
        return 10

    def train_count(self) -> int:
        return 60_000


@dataclass
class OptimizerSettings:
    """An optimizer's keys, and what it says about itself.

    Attributes:
        own_weights: whether it keeps sequences of weights of its own, of which those that are trained are one. Nothing
            else may move these then, and it fills the slot `evaluate` of an update.
        by_tensor: whether it moves each tensor by itself, with state of that shape: an update can leave some alone, and
            ranks can average their state.
    """

    own_weights: ClassVar[bool] = False
    by_tensor: ClassVar[bool] = True
    name: str = setting()
    lr: float = setting(at_least=0, example="0.01")
    weight_decay: float = setting(at_least=0, example="0.0001")

    def refusals(self, config: Config) -> Iterator[str]:
        """A sentence for each combination with other settings that cannot be right."""
        yield from ()

    def without_effect(self) -> dict[str, str]:
        """Keys that these settings never read, and with what they have no effect."""
        return {}


@dataclass
class MomentumSettings(OptimizerSettings):
    momentum: float = setting(at_least=0, below=1, example="0.9")
    nesterov: bool = setting()


@dataclass
class SgdSettings(OptimizerSettings):
    """Plain stochastic gradient descent."""


@dataclass
class AdamSettings(OptimizerSettings):
    """Adam with L2 weight decay, AdamW with decoupled decay, and LAMB."""

    beta1: float = setting(at_least=0, below=1, example="0.9")
    beta2: float = setting(at_least=0, below=1, example="0.999")
    eps: float = setting(above=0, example="1e-8")


@dataclass
class LarsSettings(OptimizerSettings):
    """Layer-wise adaptive rates for momentum."""

    momentum: float = setting(at_least=0, below=1, example="0.9")
    eta: float = setting(above=0, at_most=1, example="0.001")


@dataclass
class LionSettings(OptimizerSettings):
    """Steps by the sign of a momentum."""

    beta1: float = setting(at_least=0, below=1, example="0.9")
    beta2: float = setting(at_least=0, below=1, example="0.99")


@dataclass
class MuonSettings(OptimizerSettings):
    """Orthogonal steps for hidden matrices; `adamw_lr` and what follows it are of AdamW, which moves all else."""

    by_tensor = False  # two optimizers in one, each with a part of the tensors
    lr: float = setting(above=0, example="0.02")  # the schedule of AdamW is in proportion to it
    momentum: float = setting(at_least=0, below=1, example="0.95")
    nesterov: bool = setting()
    adamw_lr: float = setting(at_least=0, example="0.001")
    beta1: float = setting(at_least=0, below=1, example="0.9")
    beta2: float = setting(at_least=0, below=1, example="0.95")
    eps: float = setting(above=0, example="1e-8")


@dataclass
class ScheduleFreeSettings(OptimizerSettings):
    """An average of the weights in the place of a schedule; `beta2` and `eps` are of `form=adamw`."""

    own_weights = True
    by_tensor = False  # the weights of its average count updates of all
    form: str = setting(choices=("sgd", "adamw"))
    beta1: float = setting(at_least=0, below=1, example="0.9")
    beta2: float = setting(at_least=0, below=1, example="0.999")
    eps: float = setting(above=0, example="1e-8")

    def refusals(self, config: Config) -> Iterator[str]:
        if config.schedule.name != "constant":
            yield (
                f"optimizer=schedulefree with schedule={config.schedule.name}: its average takes the place of a rate "
                "that falls; write schedule=constant, with schedule.warmup=0.05 for a warm-up."
            )

    def without_effect(self) -> dict[str, str]:
        return of_other_forms("optimizer", self.form, {"beta2": "adamw", "eps": "adamw"})


@dataclass
class ScheduleSettings:
    """The learning rate over the job. Lengths are in `unit`: epochs, or fractions of the whole job."""

    name: str = setting()
    unit: str = setting(choices=("epochs", "fraction"))
    warmup: float = setting(at_least=0, example="0.05")


@dataclass
class ConstantSettings(ScheduleSettings):
    """A constant rate."""


@dataclass
class StepSettings(ScheduleSettings):
    milestones: list[float] = setting(above=0, example="[0.5,0.75]")
    gamma: float = setting(above=0, example="0.1")


@dataclass
class DecaySettings(ScheduleSettings):
    """Cosine or linear decay from the peak rate to `final_factor` of it at the job's end."""

    final_factor: float = setting(at_least=0, at_most=1, example="0")


@dataclass
class TrapezoidSettings(DecaySettings):
    """The peak rate between the warm-up and a linear decay of length `decay` at the job's end."""

    decay: float = setting(at_least=1e-6, example="0.2")


@dataclass
class DeviceSettings:
    """A topology of servers and ranks. Virtual ranks take turns in one CPU process."""

    name: str = setting()
    target: str = setting(choices=("CPU", "GPU", "Ascend"))
    servers: int = setting(at_least=1, example="2")
    ranks_per_server: int = setting(at_least=1, example="8")
    simulate: str = setting(choices=("auto", "never", "always"))
    threads: int = setting(at_least=1, example="2")
    server_rank: int | None = setting(at_least=0, example="null, or 1 on the second server")
    master: str | None = setting(pattern=r"[^\s:]+:\d{1,5}", example="null, or 10.0.0.1:8118")
    rank_table: str | None = setting()
    bucket_mb: float = setting(at_least=0, example="25")
    timeout_s: float = setting(above=0, example="300")

    @property
    def ranks(self) -> int:
        return self.servers * self.ranks_per_server

    @property
    def on_cpu(self) -> bool:
        """Whether the job runs on a CPU, once `simulate=auto` is decided."""
        return self.target == "CPU" or self.simulated

    @property
    def simulated(self) -> bool:
        """Whether the ranks are virtual; `auto` is decided before the job starts (`msaccel.launch.simulation`)."""
        return self.simulate == "always"


@dataclass
class TrainSettings:
    epochs: int | None = setting(at_least=1, example="3, or null with train.max_updates")
    max_updates: int | None = setting(at_least=1, example="null, or 1000")
    batch_size: int = setting(at_least=1, example="32")
    eval_every: int = setting(at_least=1, example="1")
    target_accuracy: float | None = setting(above=0, at_most=1, example="0.98")
    stop_at_target: bool = setting()
    on_nonfinite: str = setting(choices=("stop", "skip"))
    label_smoothing: float = setting(at_least=0, below=1, example="0.1")


@dataclass
class LossScaleSettings:
    """The loss scale, which keeps float16 gradients from vanishing."""

    mode: str = setting(choices=("none", "static", "dynamic"))
    init: float = setting(at_least=1, at_most=2.0**64, example="1024")
    growth_interval: int = setting(at_least=1, at_most=2**31 - 1, example="2000")
    max_consecutive: int = setting(at_least=1, at_most=2**31 - 2, example="10")


@dataclass
class KernelsSettings:
    """The backend of convolutions, and with `onednn` of pooling and batch norm too; see `msaccel.kernels`."""

    # A default, so that configurations saved before this key existed can be read.
    use: str = setting(default="auto", choices=("auto", "onednn", "unfold", "mindspore"))


@dataclass
class CheckpointSettings:
    """The checkpoints from which a job is resumed; see `msaccel.checkpoint`."""

    # Defaults, so that configurations saved before these keys existed can be read.
    every_updates: int | None = setting(default=None, at_least=1, example="null, or 100")
    every_minutes: float | None = setting(default=10.0, above=0, example="null, or 10")
    keep: int = setting(default=2, at_least=1, example="2")


_PART = r"(?!\.{1,2}(/|$))[^/]+"  # a component of a path, not . or .., which would leave the folder


@dataclass
class SweepSettings:
    """Settings for each job of a sweep; `retries` and `job_timeout_s` also apply to a single job."""

    # Defaults, so that configurations saved before these keys existed can be read.
    resume: bool = setting(default=False)
    retries: int = setting(default=0, at_least=0, at_most=100, example="2")
    job_timeout_s: float | None = setting(default=None, above=0, example="null, or 3600")


@dataclass
class TrackingSettings:
    uri: str = setting()
    artifacts: str = setting()
    # Also the name of a folder inside `artifacts`.
    experiment: str = setting(pattern=rf"(?=.{{1,80}}$){_PART}(/{_PART})*", example="lenet-mnist")
    every: Any = setting(at_least=1, choices=("auto",), example="auto or 100")
    # Defaults, so that configurations saved before these keys existed can be read.
    patience_minutes: float = setting(default=60.0, above=0, example="60")
    name: str | None = setting(default=None, pattern=r".{1,250}", example="null, or a name of up to 250 characters")
    tags: dict[str, str] = field(default_factory=dict, metadata={"range": Range(prose=True)})
    note: str | None = setting(default=None, prose=True)
    system_metrics: bool = setting(default=False)


@dataclass
class Config:
    """One job. `accel` has one entry for each method in use, by the method's name.

    Where `model.classes` is null it becomes the number of the data's classes; for an image folder when that is read.
    """

    seed: int = setting(at_least=0, at_most=2**31 - 1, example="0")
    model: ModelSettings = setting()
    data: DataSettings = setting()
    accel: dict[str, Any] = field(default_factory=dict)
    device: DeviceSettings = setting()
    optimizer: OptimizerSettings = setting()
    schedule: ScheduleSettings = setting()
    train: TrainSettings = setting()
    precision: str = setting(choices=("fp32", "fp16", "bf16"))
    loss_scale: LossScaleSettings = setting()
    kernels: KernelsSettings = field(default_factory=KernelsSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    resume: str | None = setting(default=None, pattern="latest|[0-9a-f]{32}", example="latest or the id of a run")
    sweep: SweepSettings = field(default_factory=SweepSettings)
    tracking: TrackingSettings = setting()

    def __post_init__(self) -> None:
        self.model.complete(self.data)


def of_other_forms(group: str, form: str, keys: dict[str, str]) -> dict[str, str]:
    """The keys of a group that its `form` never reads, and with what they have no effect.

    Args:
        keys: for each key that only one form reads, this form.
    """
    return {f"{group}.{key}": f"{group}.form={form}" for key, reader in keys.items() if reader != form}


def parameters(config: Config) -> dict[str, str]:
    """The resolved configuration as text, with dotted keys: the parameters of a run."""
    return {key: "null" if value is None else str(value) for key, value, _ in leaves(config)}
