"""The process that scores a saved run: `python -m msaccel.training.eval_worker CONFIG CHECKPOINT`, started by `eval`.

A process of its own for the same reason as the one that trains: its environment, the threads above all, comes from the
run's configuration and has to stand before MindSpore is imported.
"""

from __future__ import annotations

import sys
from pathlib import Path

from msaccel.checkpoint import weights as checkpoint
from msaccel.config.compose import load, register
from msaccel.devices.denormals import flush_denormals
from msaccel.errors import UserError, printable
from msaccel.training.builder import build_network, prepare_device
from msaccel.training.evaluation import Evaluator, Score
from msaccel.training.job import load_data


def score(config_file: Path, weights: Path) -> Score:
    """Scores a checkpoint on the whole test set of its configuration.

    Raises:
        UserError: a file, the data or the device is not what it was.
    """
    register()
    config = load(config_file)
    flush_denormals()
    prepare_device(config.device, config.seed)
    data = load_data(config)
    network = build_network(config)
    checkpoint.read(weights, network.get_parameters())
    return Evaluator(network)(data.test)


def main(config_file: str, weights: str) -> int:
    try:
        found = score(Path(config_file), Path(weights))
    except UserError as error:
        print(printable(str(error), kept="\n"), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    print(f"accuracy {found.accuracy:.4%}, loss {found.loss:.6f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
