"""The process that scores a saved run: `python -m msaccel.training.eval_worker CONFIG CHECKPOINT`, started by `eval`.

It is a process of its own for the same reason as the one that trains: its environment, above all the number of threads,
comes from the run's configuration and must be set before MindSpore is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from mindspore import nn

from msaccel.checkpoint import weights as checkpoint
from msaccel.config.compose import load, register
from msaccel.data.dataset import DatasetSplits
from msaccel.devices.denormals import flush_denormals
from msaccel.errors import UserError, printable
from msaccel.schema import Config
from msaccel.training.builder import build_network, prepare_device
from msaccel.training.evaluation import Evaluator, Score
from msaccel.training.job import load_data


def load_run(config_file: Path, weights: Path) -> tuple[nn.Cell, DatasetSplits, Config]:
    """The network of a saved run with the weights of a checkpoint, its data and its configuration.

    Raises:
        UserError: a file, the data or the device has changed since.
    """
    register()
    config = load(config_file)
    flush_denormals()
    prepare_device(config.device, config.seed)
    data = load_data(config)
    network = build_network(config)
    checkpoint.read(weights, network.get_parameters())
    return network, data, config


def score(config_file: Path, weights: Path) -> Score:
    """Scores a checkpoint on the whole test set of its configuration.

    Raises:
        UserError: a file, the data or the device has changed since.
    """
    network, data, config = load_run(config_file, weights)
    return Evaluator(network, tta=config.train.tta)(data.test)


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


def main(config_file: str, weights: str) -> int:
    def scored() -> str:
        found = score(Path(config_file), Path(weights))
        return f"accuracy {found.accuracy:.4%}, loss {found.loss:.6f}"

    return answer(scored)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
