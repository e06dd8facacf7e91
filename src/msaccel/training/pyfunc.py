"""A run's checkpoints as an MLflow model: `mlflow.pyfunc.load_model("runs:/RUN_ID/checkpoints")`.

Besides the weights the folder gets the job's configuration, and `MLmodel`, which names this module. Loading executes
nothing that is in the folder.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from platform import python_version
from typing import Any

import numpy as np
import yaml
from mindspore import Tensor, nn
from numpy.typing import NDArray

from msaccel.checkpoint import weights
from msaccel.config import compose
from msaccel.errors import DataError
from msaccel.files import atomic_write_text
from msaccel.launch.simulation import of_saved_run
from msaccel.schema import Config
from msaccel.training.builder import build_network, prepare_device
from msaccel.training.evaluation import LAST, batch_size
from msaccel.training.tta import with_tta

_CONFIG, _MODEL = "config.yaml", "MLmodel"


def write(config: Config, folder: Path) -> list[Path]:
    """Writes the files that turn a folder with checkpoints into a model.

    Raises:
        OSError: it cannot be written.
    """
    folder.mkdir(exist_ok=True)
    compose.save(config, folder / _CONFIG)
    loader = {"loader_module": __name__, "python_version": python_version()}
    atomic_write_text(folder / _MODEL, yaml.safe_dump({"flavors": {"python_function": loader}}), durable=False)
    return [folder / _CONFIG, folder / _MODEL]


class Predictor:
    """The network of a run with the weights of its last checkpoint, as it is evaluated."""

    def __init__(self, network: nn.Cell, shape: tuple[int, ...]) -> None:
        self.network, self.shape = network.set_train(False), shape  # of a sample

    def predict(self, samples: NDArray[Any], params: dict[str, Any] | None = None) -> NDArray[np.float32]:
        """The logits ``(n, classes)`` for samples ``(n, ...)`` that are transformed as the network reads them.

        Raises:
            DataError: they have another shape or kind, such as pixels from 0 to 255, or there are none.
        """
        is_text = len(self.shape) == 1
        of_kind = np.issubdtype(samples.dtype, np.integer if is_text else np.floating)
        if not samples.size or samples.shape[1:] != self.shape or not of_kind:
            expected = "whole numbers" if is_text else "transformed samples in floating point"
            raise DataError(
                f"the samples are {samples.dtype} of shape {samples.shape}; give {expected} of shape "
                f"(n, {', '.join(map(str, self.shape))}), with n of at least 1."
            )
        samples = samples.astype(np.int32 if is_text else np.float32, copy=False)
        size = batch_size(self.network, samples.shape[1:])
        batches = (samples[first : first + size] for first in range(0, len(samples), size))
        return np.concatenate([self.network(Tensor(batch)).asnumpy().astype(np.float32) for batch in batches])


def _load_pyfunc(folder: str) -> Predictor:
    """What MLflow calls.

    Raises:
        UserError: a file has changed since.
    """
    compose.register()
    config = compose.load(Path(folder) / _CONFIG)
    config.device = replace(of_saved_run(config.device), simulate="always")  # a GPU's libraries come before Python
    prepare_device(config.device, config.seed)
    network = build_network(config)
    weights.read(Path(folder) / LAST, network.get_parameters())
    return Predictor(with_tta(network, config.train.tta), config.model.input_shape())
