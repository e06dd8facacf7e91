"""What a job is told by its launcher, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Result:
    """How a job ended.

    Attributes:
        name: `accum s0`, or `[3/9] accum s0` in a sweep.
        status: FINISHED, FAILED, KILLED, or REFUSED when it never started.
        run_id: the MLflow run; empty when there is none.
        tracking_uri: where that run is.
        message: one sentence that says why it did not finish; empty when it did.
        crashed: it FAILED, but not because of its settings or data, so a retry may succeed.
    """

    name: str
    status: str
    run_id: str = ""
    tracking_uri: str = ""
    message: str = ""
    crashed: bool = False


@dataclass(frozen=True)
class Task:
    """What a job is told besides its configuration.

    Attributes:
        name: printed before each line of its output: its methods and seed, in a sweep with its number in front.
        overrides: as the user typed them.
        sweep_id: shared by the jobs of a sweep or a study, or empty.
        quiet: lines in place of a progress bar, since other jobs write to the same terminal.
        resume: id of the MLflow run to resume; empty for a new one.
        changed: settings that differ from those the job started with, by key, as MLflow's parameters.
        run_name: in MLflow; empty where it is `name`, as in jobs begun before there were two.
    """

    name: str
    overrides: list[str] = field(default_factory=list)
    sweep_id: str = ""
    quiet: bool = False
    resume: str = ""
    changed: dict[str, str] = field(default_factory=dict)
    run_name: str = ""

    @property
    def in_mlflow(self) -> str:
        """The run's name."""
        return self.run_name or self.name
