"""The tutorials' way for the other networks: native operators, graph mode, `TrainOneStepCell`, a print at every step.

Usage: tutorial_native.py CASE. The networks are msaccel's, told to use MindSpore's own operators. The MLP reads MNIST
through the pipeline of tutorial 001; a ResNet reads images from memory.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import mindspore.dataset as ds
import mindspore.dataset.transforms as transforms
import mindspore.dataset.vision as vision
import numpy as np
from cases import CASES
from measure import milliseconds
from mindspore import dtype as mstype
from mindspore import nn

from msaccel import schema
from msaccel.config.compose import from_overrides
from msaccel.data.download.fetch import locate
from msaccel.data.sets import data_sets
from msaccel.devices.machine import peak_mb
from msaccel.training.builder import build_network, prepare_device
from msaccel.training.job import load_data

IMAGES = 512  # that a pipeline of images in memory holds


def mnist_pipeline(data: schema.IdxDataSettings) -> ds.Dataset:
    source = data_sets()[data.name].SOURCE
    mnist = ds.MnistDataset(str(locate(source, data.root, data.cache)), usage="train")
    prepare = [vision.Rescale(1.0 / 255.0, 0), vision.Normalize(mean=(0.1307,), std=(0.3081,)), vision.HWC2CHW()]
    mnist = mnist.map(transforms.TypeCast(mstype.int32), input_columns="label")
    return mnist.map(prepare, input_columns="image").shuffle(buffer_size=10000)


def in_memory(config: schema.Config) -> ds.Dataset:
    train = load_data(config).train
    images, labels = train.batch(np.arange(min(IMAGES, len(train))))
    return ds.NumpySlicesDataset((images, labels), ["image", "label"], shuffle=True)


def batches(config: schema.Config) -> Iterator[list[Any]]:
    data = config.data
    if isinstance(data, schema.IdxDataSettings) and config.model.name == "mlp":
        dataset = mnist_pipeline(data)
    else:
        dataset = in_memory(config)
    dataset = dataset.batch(config.train.batch_size, drop_remainder=True)
    return (batch for epoch in itertools.count() for batch in dataset.create_tuple_iterator())


def main(name: str) -> dict[str, float]:
    case = CASES[name]
    assert case.tutorial
    timed, warm_up = case.tutorial
    config = from_overrides([*case.overrides, "kernels.use=mindspore"])
    assert isinstance(config.optimizer, schema.MomentumSettings)
    prepare_device(config.device, config.seed)
    with_loss = nn.WithLossCell(build_network(config), nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"))
    optimizer = nn.Momentum(with_loss.trainable_params(), config.optimizer.lr, config.optimizer.momentum)
    step = nn.TrainOneStepCell(with_loss, optimizer).set_train()
    first_s, begun, started = 0.0, time.perf_counter(), 0.0
    with contextlib.redirect_stdout(io.StringIO()):  # as in the tutorials, but not onto our result
        for k, batch in enumerate(itertools.islice(batches(config), warm_up + timed)):
            if k == warm_up:
                started = time.perf_counter()
            print("step:", k + 1, "loss is ", step(*batch))
            if k == 0:
                first_s = time.perf_counter() - begun
    seconds = time.perf_counter() - started
    result = {
        "samples_per_sec": timed * config.train.batch_size / seconds,
        "first_s": first_s,
        "peak_mb": peak_mb(),
    }
    if not case.slow:
        result["bare_ms"] = milliseconds(lambda: step(*batch), case.bare, lambda loss: loss.asnumpy())
    return result


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
