"""The network of a saved run, with the weights of one of its checkpoints; its score, and text that it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mindspore import nn

from msaccel.checkpoint import weights as checkpoint
from msaccel.config.compose import load, register
from msaccel.data.dataset import DatasetSplits
from msaccel.devices.denormals import flush_denormals
from msaccel.errors import DataError, UserError
from msaccel.schema import Config
from msaccel.training.builder import build_network, prepare_device
from msaccel.training.evaluation import Evaluator, Score
from msaccel.training.generate import generate
from msaccel.training.job import load_data


def load_run(config_file: Path, weights: Path, digest: str) -> tuple[nn.Cell, DatasetSplits, Config]:
    """The network of a saved run with the weights of a checkpoint, its data and its configuration.

    Args:
        digest: of the data, or its beginning.

    Raises:
        UserError: a file, the data or the device has changed since.
    """
    register()
    config = load(config_file)
    flush_denormals()
    prepare_device(config.device, config.seed)
    data = load_data(config)
    if not data.digest.startswith(digest):
        raise DataError(
            f"{data.name} is not the data that the run was trained on: its images, texts or labels have changed since; "
            "put the old ones back, in the folder that data.root of the run names."
        )
    network = build_network(config)
    checkpoint.read(weights, network.get_parameters())
    return network, data, config


def score(config_file: Path, weights: Path, digest: str) -> Score:
    """Scores a checkpoint on the whole test set of its configuration; arguments and errors are those of `load_run`."""
    network, data, config = load_run(config_file, weights, digest)
    return Evaluator(network, tta=config.train.tta)(data.test)


def sample(config_file: Path, weights: Path, digest: str, **options: Any) -> str:
    """Text written with a checkpoint; arguments and errors are those of `load_run`, options those of `generate`."""
    network, data, _ = load_run(config_file, weights, digest)
    if not data.vocabulary:
        raise UserError(f"the run has learned {data.name}, no text; give the id of a run of model=gpt.")
    return generate(network, data, **options)
