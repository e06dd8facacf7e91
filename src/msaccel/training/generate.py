"""Text that a trained network writes, one character after the other, each drawn by the probabilities it gives."""

from __future__ import annotations

import numpy as np
from mindspore import Tensor, nn
from numpy.typing import NDArray

from msaccel.data.dataset import DatasetSplits
from msaccel.errors import UserError, on_one_line

FILE = "sample.txt"
LENGTH = 500  # characters of a run's sample
TEMPERATURE = 0.8  # nanoGPT's
# A random stream of its own: the order of samples is seeded with [seed, epoch], synthetic data and splits with 0 and 1.
_SPAWN_KEY = 2


def generate(
    network: nn.Cell,
    data: DatasetSplits,
    seed: int,
    *,
    prompt: str | None = None,
    length: int = LENGTH,
    temperature: float = TEMPERATURE,
) -> str:
    """The text with which the network continues a prompt.

    For each character the network reads the last block of them. Padding after the last character changes nothing, since
    the network only looks back.

    Args:
        network: maps characters (1, block) to logits (1, block, classes).
        data: the data it was trained on, with its vocabulary.
        seed: the same seed gives the same text.
        prompt: not part of the result; None for a line break, or the vocabulary's first character if it has none.
        length: characters to write.
        temperature: divides the logits: below 1 for likelier characters, 0 for the likeliest.

    Raises:
        UserError: a character of the prompt is not in the vocabulary.
    """
    numbers = {character: number for number, character in enumerate(data.vocabulary)}
    if not prompt:
        prompt = "\n" if "\n" in numbers else data.vocabulary[0]
    if unknown := [character for character in prompt if character not in numbers]:
        raise UserError(
            f"the prompt has {on_one_line(repr(unknown[0]))}, which is not among the {len(numbers)} characters of "
            f"{data.name}; leave it out."
        )
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_SPAWN_KEY,)))
    (block,) = data.test.shape
    text = [numbers[character] for character in prompt]
    training = network.training
    network.set_train(False)
    for draw in rng.random(length):
        seen = text[-block:]
        characters = np.zeros((1, block), np.int32)
        characters[0, : len(seen)] = seen
        logits = network(Tensor(characters)).asnumpy()[0, len(seen) - 1, : len(numbers)].astype(np.float64)
        text.append(_drawn(logits, temperature, draw))
    network.set_train(training)
    return "".join(data.vocabulary[number] for number in text[len(prompt) :])


def _drawn(logits: NDArray[np.float64], temperature: float, draw: float) -> int:
    """A character's number, drawn from the softmax of the logits by a random number in [0, 1)."""
    logits = np.nan_to_num(logits)  # NaN if the network has diverged
    if temperature == 0:
        return int(logits.argmax())
    shares = np.cumsum(np.exp((logits - logits.max()) / temperature))
    return int(np.searchsorted(shares, draw * shares[-1], side="right"))
