"""Coverage-guided fuzzing of one reader: `python -m tests.fuzz.guided TARGET [libFuzzer's options]`; `make fuzz`.

An input that crashes, hangs or takes too much memory is left in the current folder as `crash-…`, `timeout-…` or
`oom-…`; `python -m tests.fuzz.guided TARGET FILE` runs it again. What reached new code stays in `corpus`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris


def main() -> None:
    name = sys.argv.pop(1)
    corpus = Path("corpus")
    corpus.mkdir(exist_ok=True)
    with atheris.instrument_imports(include=["msaccel", "tarfile", "PIL", "yaml", "omegaconf"]):
        from tests.fuzz.targets import TARGETS

        target, seeds = TARGETS[name]
        for number, seed in enumerate(seeds()):
            target(seed)  # here, since a target may import what it reads with
            (corpus / f"seed-{number}").write_bytes(seed)
    one = any(not argument.startswith("-") for argument in sys.argv[1:])
    atheris.Setup(sys.argv if one else [*sys.argv, str(corpus)], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
