"""Test-time augmentation against views and means made by hand."""

from collections.abc import Callable

import numpy as np
import pytest
from mindspore import Tensor

from msaccel.config.checks import refusals
from msaccel.data.dataset import InMemoryDataset
from msaccel.training.evaluation import Evaluator
from msaccel.training.tta import with_tta
from tests import reference

DRAW = np.random.default_rng(0)


@pytest.fixture
def split() -> InMemoryDataset:
    images = DRAW.integers(256, size=(30, 1, 3, 4), dtype=np.uint8)
    return InMemoryDataset(images, np.arange(30, dtype=np.int32) % 4, np.linspace(-1, 1, 256, dtype=np.float32))


def by_hand(logits: Callable, images: np.ndarray, shifted: bool) -> np.ndarray:
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)), "reflect")
    height, width = images.shape[2:]
    weights = {(1, 1): 1.0, (0, 0): 0.0, (2, 2): 0.0} if not shifted else {(1, 1): 0.5, (0, 0): 0.25, (2, 2): 0.25}
    total = 0.0
    for (top, left), weight in weights.items():
        view = padded[:, :, top : top + height, left : left + width]
        total = total + weight * (logits(view) + logits(view[..., ::-1])) / 2
    return total


@pytest.mark.parametrize("tta", ["flip", "shift"])
def test_the_score_is_of_mean_logits(tiny, split: InMemoryDataset, tta: str) -> None:
    network = tiny()
    weights = [weight.asnumpy().astype(float) for weight in network.trainable_params()]

    def logits(images: np.ndarray) -> np.ndarray:
        hidden = np.maximum(0, images.reshape(len(images), -1) @ weights[0].T + weights[1])
        return hidden @ weights[2].T + weights[3]

    images, labels = split.batch(np.arange(30))
    expected = by_hand(logits, images.astype(float), tta == "shift")
    found = with_tta(network, tta)(Tensor(images)).asnumpy()
    assert reference.distance([found], [expected]) <= 1e-6
    score, plain = Evaluator(network, tta=tta)(split), Evaluator(network)(split)
    assert score.loss == pytest.approx(reference.cross_entropy(expected, labels), rel=1e-6)
    assert score.accuracy == (expected.argmax(1) == labels).mean() and score.loss != plain.loss


def test_a_text_has_no_mirror_image(composed: Callable) -> None:
    config = composed("model=gpt", "data=shakespeare", "train.tta=flip")
    assert refusals(config) == ["train.tta=flip mirrors images, and model=gpt reads a text; write train.tta=none."]
