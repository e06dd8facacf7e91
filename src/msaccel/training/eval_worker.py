"""The process that scores a saved run: `python -m msaccel.training.eval_worker CONFIG CHECKPOINT DIGEST`.

`eval` starts it. It is a process of its own for the same reason as the one that trains: its environment, above all the
number of threads, comes from the run's configuration and must be set before MindSpore is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from msaccel.errors import UserError, printable
from msaccel.training.importing import importing


def answer(make: Callable[[], str]) -> int:
    """Prints what `make` returns, or why it failed; returns the exit code."""
    try:
        print(make())
    except UserError as error:
        print(printable(str(error), kept="\n"), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def main(config_file: str, weights: str, digest: str) -> int:
    def scored() -> str:
        with importing():
            from msaccel.training.saved_network import score

        found = score(Path(config_file), Path(weights), digest)
        return f"accuracy {found.accuracy:.4%}, loss {found.loss:.6f}"

    return answer(scored)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
