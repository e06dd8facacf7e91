"""Many jobs that log at once, without the training:
`python -m tests.tracking.storage.writers URI FOLDER WRITERS UPDATES`.

One process imports and composes, then each writer is a fork of it. A writer begins a run as a job does, logs
`METRICS` at every update, flushes every `EVERY` updates instead of every five seconds, and ends its run. Half-way it
waits until there is a file `GO`.
"""

import os
import sys
import time
import traceback
from pathlib import Path

METRICS = ("train/loss", "train/accuracy", "lr", "grad/norm", "epoch", "time/train_s", "time/input_s", "eval/loss")
EVERY = 20
GO = "go"


def write(config: object, number: int, folder: Path, updates: int) -> None:
    from msaccel.tracking.start import start

    run = start(config, f"writer-{number}", "", folder / str(number))  # type: ignore[arg-type]
    with run:
        for update in range(1, updates + 1):
            run.metrics(update, {name: number + update / 1000 for name in METRICS})
            if update % EVERY == 0:
                run.flush()
            if update == updates // 2:
                (folder / f"half-{number}").touch()
                while not (folder / GO).exists():
                    time.sleep(0.05)
        run.tag(selected_on="test")


def main(uri: str, folder: Path, writers: int, updates: int) -> int:
    from hydra import compose, initialize_config_dir

    import msaccel.tracking.mlflow_run  # noqa: F401 - once, before the forks
    from msaccel.config.compose import register, typed
    from msaccel.files import CONF

    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = typed(compose("config", [f"tracking.uri={uri}", f"tracking.artifacts={folder}/artifacts"]))
    children = []
    for number in range(writers):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                write(config, number, folder, updates)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
    return int(any([os.waitpid(child, 0)[1] for child in children]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
