"""Checkpoints: what was written comes back, and a file that is not right changes nothing."""

import os
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor
from safetensors.numpy import load_file, save_file

from msaccel.checkpoint import weights
from msaccel.errors import CheckpointError
from tests.conftest import assert_same_bits

pytestmark = pytest.mark.usefixtures("graph_mode")

COUNTERS = {"update": 7, "epoch": 1, "samples": 224, "seed": 3}


def make(seed: int, **shapes: tuple[int, ...]) -> list[Parameter]:
    draw = np.random.default_rng(seed).standard_normal
    shapes = shapes or {"weight": (4, 3), "bias": (3,), "scalar": ()}
    parameters = [Parameter(Tensor(draw(shape), ms.float32), name=name) for name, shape in shapes.items()]
    return [*parameters, Parameter(Tensor([seed], ms.int32), name="step")]


def values(parameters: list[Parameter]) -> dict[str, np.ndarray]:
    return {parameter.name: parameter.asnumpy().copy() for parameter in parameters}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A checkpoint of `make(0)`."""
    weights.write(tmp_path / "last.safetensors", make(0), COUNTERS)
    return tmp_path / "last.safetensors"


def test_round_trip(file: Path) -> None:
    parameters = make(1)
    assert weights.read(file, parameters) == COUNTERS
    assert_same_bits(values(parameters), values(make(0)))


def test_values_that_are_not_finite_come_back(tmp_path: Path) -> None:
    odd = np.array([np.nan, -np.inf, -0.0, 1e-45], np.float32)
    weights.write(tmp_path / "odd.safetensors", [Parameter(Tensor(odd), name="odd")], COUNTERS)
    found = Parameter(Tensor(np.ones(4, np.float32)), name="odd")
    weights.read(tmp_path / "odd.safetensors", [found])
    assert found.asnumpy().tobytes() == odd.tobytes()


@pytest.mark.parametrize("optimizer", ["momentum", "sgd", "adam", "adamw"])
def test_training_goes_on_as_if_nothing_had_been(build, digits, tmp_path: Path, optimizer: str) -> None:
    batches = [digits("mlp").train.batch(np.arange(8) + 8 * update) for update in range(4)]
    through, resumed = build("mlp", optimizer, 8), build("mlp", optimizer, 8, seed=1)
    for update, batch in enumerate(batches):
        if update == 2:
            path = tmp_path / "last.safetensors"
            weights.write(path, {p.name: p for p in parameters(through)}.values(), COUNTERS)
            weights.read(path, parameters(resumed))
        through.step([batch], 0.01)
        if update >= 2:
            resumed.step([batch], 0.01)
    assert_same_bits(resumed.state(), through.state())


def parameters(parts) -> list[Parameter]:
    return [*parts.network.get_parameters(), *parts.optimizer.get_parameters()]


def test_a_part_is_read_and_the_rest_left_alone(file: Path) -> None:
    (weight, *_) = make(1)
    weights.read(file, [weight])
    np.testing.assert_array_equal(weight.asnumpy(), make(0)[0].asnumpy())


def test_mindspore_reads_it(file: Path) -> None:
    loaded = ms.load_checkpoint(str(file), format="safetensors")
    assert_same_bits({name: value.asnumpy() for name, value in loaded.items()}, values(make(0)))


def cut(share: float):
    return lambda path: path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


def rewrite(metadata: dict[str, str] | None):
    return lambda path: save_file(load_file(path), path, metadata)


DAMAGE = {
    "missing": os.remove,
    "empty": cut(0),
    "cut in the header": cut(0.1),
    "cut in the values": cut(0.98),
    "text": lambda path: path.write_text("a page that says 404\n"),
    "noise": lambda path: path.write_bytes(np.random.default_rng(0).bytes(500)),
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "of somebody else": rewrite(None),
    "of another format": rewrite({"format": "msaccel-0"}),
    "numpy": lambda path: np.save(path.open("wb"), np.zeros(3)),
}


def assert_refused(path: Path, into: list[Parameter], *words: str) -> None:
    before = values(into)
    with pytest.raises(CheckpointError) as error:
        weights.read(path, into)
    assert_same_bits(values(into), before)
    message = str(error.value)
    assert "\n" not in message and all(word in message for word in (str(path), *words))


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_file_is_refused(file: Path, damage) -> None:
    damage(file)
    assert_refused(file, make(1))


OTHERS = {
    "a name it lacks": ({"weight": (4, 3), "bias": (3,), "gamma": (3,)}, "gamma"),
    "another shape": ({"weight": (4, 3), "bias": (4,)}, "bias"),
    "transposed": ({"bias": (3,), "weight": (3, 4)}, "weight"),
    "fewer dimensions": ({"bias": (3,), "weight": (12,)}, "weight"),
    "all of them another's": ({"conv1.weight": (6, 1, 5, 5)}, "conv1.weight"),
}


@pytest.mark.parametrize(("shapes", "name"), OTHERS.values(), ids=OTHERS.keys())
def test_another_network_is_refused(file: Path, shapes: dict[str, tuple[int, ...]], name: str) -> None:
    assert_refused(file, make(1, **shapes), name)


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_an_interrupted_write_leaves_the_old_file(file: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    before = file.read_bytes()

    def fail(*arguments: object) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(OSError, match="No space left"):
            weights.write(file, make(1), COUNTERS)
    assert file.read_bytes() == before
    weights.write(file, make(2), COUNTERS)
    found = make(1)
    weights.read(file, found)
    assert_same_bits(values(found), values(make(2)))


def test_writing_leaves_one_file(file: Path) -> None:
    weights.write(file, make(1), COUNTERS)
    assert os.listdir(file.parent) == [file.name]


def test_the_bytes_are_safe_before_the_name_changes(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, name=name, real=real: (calls.append(name), real(*a)))
    weights.write(file, make(1), COUNTERS)
    assert calls == ["fsync", "replace"]
