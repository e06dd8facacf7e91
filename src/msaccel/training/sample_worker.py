"""The process in which a saved run writes text: `python -m msaccel.training.sample_worker CONFIG CHECKPOINT DIGEST
OPTIONS`.

`sample` starts it; the options are those of `generate`, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from msaccel.errors import UserError, printable
from msaccel.training.eval_worker import answer
from msaccel.training.importing import importing


def main(config_file: str, weights: str, digest: str, options: str) -> int:
    def written() -> str:
        with importing():
            from msaccel.training.generate import generate
            from msaccel.training.saved_network import load_run

        network, data, _ = load_run(Path(config_file), Path(weights), digest)
        if not data.vocabulary:
            raise UserError(f"the run has learned {data.name}, no text; give the id of a run of model=gpt.")
        return printable(generate(network, data, **json.loads(options)), kept="\n\t\u3000\u00a0")

    return answer(written)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
