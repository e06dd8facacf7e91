"""The folder through which a launching process and its workers speak: settings in, a result out."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

FINISHED, FAILED, KILLED, REFUSED = "FINISHED", "FAILED", "KILLED", "REFUSED"


@dataclass(frozen=True)
class Result:
    """How a job ended.

    Attributes:
        name: `accum-cpu-s0`, the run's name.
        status: FINISHED, FAILED, KILLED, or REFUSED when it never started.
        run_id: the MLflow run; empty when there is none.
        tracking_uri: where that run is.
        message: one sentence that says why it did not finish; empty when it did.
    """

    name: str
    status: str
    run_id: str = ""
    tracking_uri: str = ""
    message: str = ""


@dataclass(frozen=True)
class JobFolder:
    """`config.yaml` and `job.json` are written by the launcher, `run.json` and `result.json` by the worker."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    def write(self, name: str, content: object) -> None:
        """Writes JSON in one piece: a reader sees the whole file or none."""
        temporary = self.path / f".{name}.{os.getpid()}"
        temporary.write_text(json.dumps(content, indent=2))
        os.replace(temporary, self.path / name)

    def read(self, name: str) -> dict[str, str] | None:
        """What was written under the name, or None."""
        try:
            content = json.loads((self.path / name).read_text())
        except FileNotFoundError:
            return None
        return content if isinstance(content, dict) else None

    def finish(self, result: Result) -> Result:
        self.write("result.json", asdict(result))
        return result

    def clear(self) -> None:
        """Removes the folder: MLflow has a copy of all that a finished job wrote."""
        shutil.rmtree(self.path)

    def result(self) -> Result | None:
        content = self.read("result.json")
        return Result(**content) if content else None
