"""The keys of MLflow, and of sweeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msaccel.schema.fields import Range, setting

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
