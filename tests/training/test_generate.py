"""Text that a network writes: what it has seen decides, the seed draws, and only characters that it knows are read."""

from itertools import pairwise

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from msaccel.data.dataset import DatasetSplits
from msaccel.data.text import TextDataset
from msaccel.errors import UserError
from msaccel.training.generate import generate

pytestmark = pytest.mark.usefixtures("graph_mode")

VOCABULARY = "\nabc"
BLOCK = 3


class Next(nn.Cell):
    """The successor of each character is likely; that of the last one is a fifth class, which no character has."""

    def __init__(self, sure: float) -> None:
        super().__init__()
        self.table = Tensor(sure * np.roll(np.eye(5), 1, axis=1).astype(np.float32))

    def construct(self, x: Tensor) -> Tensor:
        return ops.gather(self.table, x, 0)


@pytest.fixture
def data() -> DatasetSplits:
    text = TextDataset(np.zeros(20, np.uint16), np.arange(4), BLOCK)
    return DatasetSplits("own", text, None, text, len(VOCABULARY), "", VOCABULARY)


def test_the_likeliest_character_is_written(data: DatasetSplits) -> None:
    assert generate(Next(9.0), data, 0, prompt="a", length=5, temperature=0) == "bc\nab"
    assert generate(Next(9.0), data, 0, length=4, temperature=0) == "abc\n"  # from a line break


def test_a_prompt_longer_than_a_block(data: DatasetSplits) -> None:
    assert generate(Next(9.0), data, 0, prompt="cccccca", length=2, temperature=0) == "bc"


def test_the_seed_draws(data: DatasetSplits) -> None:
    texts = [generate(Next(1.0), data, seed, length=60) for seed in (0, 0, 1)]
    assert texts[0] == texts[1] != texts[2]


def test_characters_are_drawn_by_their_probabilities(data: DatasetSplits) -> None:
    """From one character to its successor with e^(1/t) / (e^(1/t) + 3)."""
    for temperature in (0.5, 2.0):
        text = generate(Next(1.0), data, 0, length=4000, temperature=temperature)
        found = [(one, next_one) for one, next_one in pairwise(text) if one != "c"]
        right = np.mean([pair in (("\n", "a"), ("a", "b"), ("b", "c")) for pair in found])
        share = np.exp(1 / temperature) / (np.exp(1 / temperature) + 3)
        assert right == pytest.approx(share, abs=5 * np.sqrt(0.25 / len(found)))


@pytest.mark.parametrize("logit", [np.nan, np.inf])
def test_a_network_that_has_diverged_writes_something(data: DatasetSplits, logit: float) -> None:
    assert len(generate(Next(logit), data, 0, length=5)) == 5


def test_a_character_that_was_never_read(data: DatasetSplits) -> None:
    with pytest.raises(UserError, match=r"^the prompt has 'é', which is not among the 4 characters of own; leave it"):
        generate(Next(1.0), data, 0, prompt="aé")


def test_it_leaves_the_network_in_training(data: DatasetSplits) -> None:
    network = Next(1.0).set_train()
    assert len(generate(network, data, seed=0)) == 500 and network.training
    assert ms.get_context("mode") == ms.GRAPH_MODE
