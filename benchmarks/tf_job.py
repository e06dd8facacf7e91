"""TensorFlow with oneDNN, in a compiled step (`tf.function`), on the samples, order and recipe of a job of msaccel's.

Usage: tf_job.py CASE. All processors are used. Samples are looked up as in msaccel; nothing is logged, and no loss is
read before the end.
"""

from __future__ import annotations

import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from cases import CASES
from measure import load_samples
from peer_loop import train
from tf_networks import build

from msaccel import schema
from msaccel.config.compose import from_overrides
from msaccel.data.dataset import DatasetSplits


class Trainer:
    """One update a call, on the mean cross entropy, with the job's optimizer."""

    def __init__(self, config: schema.Config) -> None:
        keras.utils.set_random_seed(config.seed)
        self.network, self.optimizer = build(config.model), build_optimizer(config)
        self.step = tf.function(self.update, reduce_retracing=True)

    def update(self, samples: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = self.network(samples, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        weights = self.network.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss


def build_optimizer(config: schema.Config) -> keras.optimizers.Optimizer:
    chosen = config.optimizer
    if isinstance(chosen, schema.MomentumSettings):
        return keras.optimizers.SGD(chosen.lr, chosen.momentum)
    assert isinstance(chosen, schema.AdamSettings)
    return keras.optimizers.AdamW(
        chosen.lr,
        chosen.weight_decay,
        chosen.beta1,
        chosen.beta2,
        chosen.eps,
        global_clipnorm=config.accel["clip"].max_norm if "clip" in config.accel else None,
    )


def make_batch(data: DatasetSplits, indices: np.ndarray) -> tuple[tf.Tensor, tf.Tensor]:
    samples, labels = data.train.batch(indices)
    if samples.ndim == 4:
        samples = np.ascontiguousarray(samples.transpose(0, 2, 3, 1))
    return tf.convert_to_tensor(samples), tf.convert_to_tensor(labels)


def main(name: str) -> dict[str, float]:
    case = CASES[name]
    config = from_overrides(case.overrides)
    data = load_samples(config)
    return train(case, config, data, Trainer(config).step, make_batch, lambda loss: loss.numpy())


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
