"""Evaluation: every sample once, in evaluation mode, and nothing changed."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from msaccel.data.dataset import InMemoryDataset
from msaccel.training import evaluation as evaluate
from msaccel.training.evaluation import Evaluator, batch_size
from tests import reference
from tests.conftest import assert_same_bits


def score(weights, split: InMemoryDataset, logits=reference.mlp) -> tuple[float, float]:
    images, labels = split.batch(np.arange(len(split)))
    found = logits(weights, images)
    return reference.cross_entropy(found, labels), (found.argmax(1) == labels).mean()


@pytest.mark.parametrize("size", [1, 7, 100, 201])
def test_every_sample_counts_once(build, digits, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(evaluate, "_PIXELS", 100 * 28 * 28)
    parts, split = build("mlp", "plain", 8), digits("mlp").test.subset(np.arange(size))
    found = Evaluator(parts.network)(split)
    loss, accuracy = score(parts.weights(), split)
    assert found.loss == pytest.approx(loss, rel=1e-6) and found.accuracy == accuracy


def test_a_batch_may_not_hold_one_large_image(build, digits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "_PIXELS", 10)
    parts, split = build("mlp", "plain", 8), digits("mlp").test.subset(np.arange(3))
    assert Evaluator(parts.network)(split).loss == pytest.approx(score(parts.weights(), split)[0], rel=1e-6)


@pytest.mark.parametrize(
    ("channels", "shape", "size"),
    [(16, (1, 32, 32), 976), (64, (3, 32, 32), 325), (512, (3, 32, 32), 12), (512, (3, 224, 224), 6)],
)
def test_deep_networks_have_small_batches(graph_mode, channels: int, shape: tuple[int, ...], size: int) -> None:
    """A convolution of 512 to 512 channels, as the last ones of a ResNet-50, has 2.4 million weights."""
    assert batch_size(nn.SequentialCell(nn.Conv2d(channels, channels, 3)), shape) == size


def test_lenet(build, digits) -> None:
    parts, split = build("lenet", "plain", 8), digits("lenet").test.subset(np.arange(50))
    found = Evaluator(parts.network)(split)
    loss, accuracy = score(parts.weights(), split, reference.lenet)
    assert found.loss == pytest.approx(loss, rel=1e-6) and found.accuracy == accuracy


def test_loss_of_a_sample_that_is_far_off(build, digits) -> None:
    parts, split = build("mlp", "plain", 8), digits("mlp").test.subset(np.arange(20))
    last = parts.network.trainable_params()[-2]
    last.set_data(Tensor(2000 * last.asnumpy()))
    loss, accuracy = score(parts.weights(), split)
    found = Evaluator(parts.network)(split)
    assert loss > 100 and found.accuracy == accuracy and found.loss == pytest.approx(loss, rel=1e-5)


def test_the_weights_of_now_are_scored_and_left(build, digits) -> None:
    parts, split = build("mlp", "adam", 8), digits("mlp").test.subset(np.arange(50))
    evaluator, scores = Evaluator(parts.network), []
    for update in range(3):
        before = parts.state()
        scores.append(evaluator(split))
        assert_same_bits(parts.state(), before)
        assert scores[-1].loss == pytest.approx(score(parts.weights(), split)[0], rel=1e-6)
        parts.step([digits("mlp").train.batch(np.arange(8) + 8 * update)], 0.001)
    assert len(set(scores)) == 3


def test_evaluating_between_updates_does_not_show(build, digits) -> None:
    watched, alone = (build("lenet", "adam", 8) for _ in range(2))
    evaluator, split = Evaluator(watched.network), digits("lenet").test.subset(np.arange(20))
    for update in range(3):
        for parts in (watched, alone):
            parts.step([digits("lenet").train.batch(np.arange(8) + 8 * update)], 0.001)
        evaluator(split)
    assert_same_bits(watched.state(), alone.state())


@pytest.mark.parametrize("training", [True, False])
def test_dropout_rests_and_the_training_flag_comes_back(graph_mode, training: bool) -> None:
    ms.set_seed(0)
    network = nn.SequentialCell(nn.Flatten(), nn.Dropout(p=0.9), nn.Dense(16, 4)).set_train(training)
    draw = np.random.default_rng(0)
    images = draw.integers(256, size=(30, 1, 4, 4), dtype=np.uint8)
    split = InMemoryDataset(images, np.arange(30, dtype=np.int32) % 4, np.linspace(-1, 1, 256, dtype=np.float32))
    found = Evaluator(network)(split)
    loss, accuracy = score([parameter.asnumpy() for parameter in network.get_parameters()], split)
    assert found.loss == pytest.approx(loss, rel=1e-6) and found.accuracy == accuracy
    assert {cell.training for _, cell in network.cells_and_names()} == {training}
