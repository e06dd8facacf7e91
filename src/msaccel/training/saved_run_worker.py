"""The process that scores a saved run, or writes text with its network:
`python -m msaccel.training.saved_run_worker CONFIG CHECKPOINT DIGEST [OPTIONS]`.

`eval` starts it without options, `sample` with those of `generate`, as JSON. It is a process of its own for the same
reason as the one that trains: its environment, above all the number of threads, comes from the run's configuration and
must be set before MindSpore is imported.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from msaccel.errors import UserError, printable
from msaccel.training.importing import importing


def main(config_file: str, weights: str, digest: str, options: str = "") -> int:
    """Prints the score or the text, or why there is none; returns the exit code."""
    run = Path(config_file), Path(weights), digest
    try:
        with importing():
            from msaccel.training.saved_network import sample, score
        if options:
            print(printable(sample(*run, **json.loads(options)), kept="\n\t\u3000\u00a0"))
        else:
            found = score(*run)
            print(f"accuracy {found.accuracy:.4%}, loss {found.loss:.6f}")
    except UserError as error:
        print(printable(str(error), kept="\n"), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
