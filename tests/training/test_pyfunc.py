"""The checkpoints of a run are a model of MLflow's, which answers as the run was evaluated."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_softmax

from msaccel.checkpoint import weights
from msaccel.config import compose
from msaccel.devices import doctor
from msaccel.errors import DataError
from msaccel.schema import Config
from msaccel.training import pyfunc
from msaccel.training.builder import build_network
from tests.running import Store

# In a process that knows nothing of the job: the logits for all test samples, with their labels.
PREDICT = """
import sys
import mlflow
import numpy as np
from msaccel.config import compose
from msaccel.training.job import load_data

model = mlflow.pyfunc.load_model(sys.argv[1])
images, labels = load_data(compose.load(sys.argv[2])).test.batch(np.arange(70))
np.savez(sys.argv[3], logits=model.predict(images), labels=labels)
"""


@pytest.mark.slow
def test_it_predicts_what_was_evaluated(trained: Store, tmp_path: Path) -> None:
    run = trained.runs()[0]
    model, found = f"runs:/{run.info.run_id}/checkpoints", tmp_path / "found.npz"
    config = trained.client.download_artifacts(run.info.run_id, "config.yaml", str(tmp_path))
    command = [sys.executable, "-c", PREDICT, model, config, str(found)]
    ended = subprocess.run(
        command, env={**os.environ, "MLFLOW_TRACKING_URI": trained.uri}, stderr=subprocess.PIPE, text=True, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    assert "WARNING mlflow" not in ended.stderr
    with np.load(found) as arrays:
        logits, labels = arrays["logits"], arrays["labels"]
    assert logits.shape == (70, 10) and logits.dtype == np.float32
    loss = -log_softmax(logits.astype(np.float64), 1)[np.arange(70), labels].mean()
    assert np.mean(logits.argmax(1) == labels) == pytest.approx(run.data.metrics["final/accuracy"])
    assert loss == pytest.approx(run.data.metrics["final/loss"], rel=1e-5)


@pytest.mark.parametrize("device", ["gpu", "ascend1", "ascend8"])
def test_on_a_machine_without_its_card_the_network_computes_on_the_cpu(
    composed: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture, device: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(doctor, "missing", lambda device: ["no usable driver; install one."])
    pyfunc.write(config := composed(), tmp_path)
    network = build_network(config)
    weights.write(tmp_path / "last.safetensors", network.get_parameters(), {"update": 1})
    saved = composed(f"device={device}", "device.simulate=never")
    compose.save(saved, tmp_path / "config.yaml")
    logits = pyfunc._load_pyfunc(str(tmp_path)).predict(np.zeros((2, 1, 32, 32), np.float32))
    assert np.array_equal(logits, pyfunc.Predictor(network, (1, 32, 32)).predict(np.zeros((2, 1, 32, 32), np.float32)))
    (said,) = caplog.messages
    assert said == (
        f"device={device}, on which the run was trained, cannot be used here (no usable driver; install one); "
        "its network computes on the CPU."
    )


def test_it_looks_at_the_views_that_were_evaluated(composed: Callable[..., Config], tmp_path: Path) -> None:
    pyfunc.write(config := composed("train.tta=flip"), tmp_path)
    network = build_network(config)
    weights.write(tmp_path / "last.safetensors", network.get_parameters(), {"update": 1})
    images = np.random.default_rng(0).normal(size=(3, 1, 32, 32)).astype(np.float32)
    once = pyfunc.Predictor(network, (1, 32, 32))
    mean = (once.predict(images) + once.predict(images[..., ::-1])) / 2
    found = pyfunc._load_pyfunc(str(tmp_path)).predict(images)
    np.testing.assert_allclose(found, mean, rtol=1e-5, atol=1e-6)
    assert np.abs(found - once.predict(images)).max() > 1e-3


def test_samples_of_another_precision_are_converted(composed: Callable[..., Config]) -> None:
    model = pyfunc.Predictor(build_network(composed("model=mlp")), (1, 28, 28))
    samples = np.random.default_rng(0).normal(size=(3, 1, 28, 28))
    assert np.array_equal(model.predict(samples), model.predict(samples.astype(np.float32)))


@pytest.mark.parametrize(
    "samples",
    [np.zeros((2, 1, 28, 28), np.uint8), np.zeros((0, 1, 28, 28)), np.zeros((2, 28, 28)), np.float32(1)],
    ids=("pixels", "none", "shape", "number"),
)
def test_what_are_no_samples_of_the_network_is_refused(composed: Callable[..., Config], samples: np.ndarray) -> None:
    model = pyfunc.Predictor(build_network(composed("model=mlp")), (1, 28, 28))
    with pytest.raises(DataError, match=r"in floating point of shape \(n, 1, 28, 28\)") as raised:
        model.predict(samples)
    assert f"the samples are {samples.dtype} of shape {samples.shape}; " in str(raised.value)


def test_a_text_is_whole_numbers(composed: Callable[..., Config]) -> None:
    settings = composed("model=gpt", "data=shakespeare", "model.classes=9", "model.block=8", "model.width=8")
    model = pyfunc.Predictor(build_network(settings), (8,))
    text = np.arange(8)[None]
    assert np.array_equal(model.predict(text), model.predict(text.astype(np.int32)))
    with pytest.raises(DataError, match=r"give whole numbers of shape \(n, 8\)"):
        model.predict(text.astype(np.float32))


@pytest.mark.slow
def test_its_configuration_is_that_of_the_run_with_what_the_data_said(trained: Store, tmp_path: Path) -> None:
    run = trained.runs()[0]
    paths = ("config.yaml", "checkpoints/config.yaml")
    of_run, of_model = (Path(trained.client.download_artifacts(run.info.run_id, path, str(tmp_path))) for path in paths)
    compose.register()
    assert compose.load(of_run) == compose.load(of_model)
