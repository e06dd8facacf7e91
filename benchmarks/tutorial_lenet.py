"""Tutorial 000's own script: native convolution, its dataset pipeline, its accumulation cells and its prints.

Changed only where MindSpore 2.10 demands it: the names of the dataset operators and of the device setting, and the
script stops after a number of batches and says how fast it was. Usage: tutorial_lenet.py MNIST_FOLDER BATCHES [SIZE]
"""

import contextlib
import io
import json
import sys
import time

import mindspore.dataset as ds
import mindspore.dataset.transforms as C
import mindspore.dataset.vision as CV
from mindspore import DatasetHelper, ParameterTuple, context, nn, ops
from mindspore import dtype as mstype
from mindspore.common.initializer import Normal
from mindspore.dataset.vision import Inter

from msaccel.devices.machine import peak_mb

WARM_UP = 20  # batches before the clock starts: compiling, first allocations


def create_dataset(folder, batch_size=32):
    mnist_ds = ds.MnistDataset(folder, usage="train")
    c_trans = [
        CV.Resize((32, 32), interpolation=Inter.LINEAR),
        CV.Rescale(1 / 0.3081, -1 * 0.1307 / 0.3081),
        CV.Rescale(1.0 / 255.0, 0.0),
        CV.HWC2CHW(),
    ]
    mnist_ds = mnist_ds.map(C.TypeCast(mstype.int32), input_columns="label", num_parallel_workers=1)
    mnist_ds = mnist_ds.map(c_trans, input_columns="image", num_parallel_workers=1)
    mnist_ds = mnist_ds.shuffle(buffer_size=10000)
    return mnist_ds.batch(batch_size, drop_remainder=True)


class LeNet5(nn.Cell):
    def __init__(self, num_class=10, num_channel=1):
        super().__init__()
        self.conv1 = nn.Conv2d(num_channel, 6, 5, pad_mode="valid")
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid")
        self.fc1 = nn.Dense(16 * 5 * 5, 120, weight_init=Normal(0.02))
        self.fc2 = nn.Dense(120, 84, weight_init=Normal(0.02))
        self.fc3 = nn.Dense(84, num_class, weight_init=Normal(0.02))
        self.relu = nn.ReLU()
        self.max_pool2d = nn.MaxPool2d(kernel_size=2, stride=2)
        self.flatten = nn.Flatten()

    def construct(self, x):
        x = self.max_pool2d(self.relu(self.conv1(x)))
        x = self.max_pool2d(self.relu(self.conv2(x)))
        x = self.flatten(x)
        x = self.relu(self.fc1(x))
        x = self.relu(self.fc2(x))
        return self.fc3(x)


_sum_op = ops.MultitypeFuncGraph("grad_sum_op")
_clear_op = ops.MultitypeFuncGraph("clear_op")


@_sum_op.register("Tensor", "Tensor")
def _cumulative_grad(grad_sum, grad):
    return ops.AssignAdd()(grad_sum, grad)


@_clear_op.register("Tensor", "Tensor")
def _clear_grad_sum(grad_sum, zero):
    return ops.depend(True, ops.assign(grad_sum, zero))


class TrainForwardBackward(nn.Cell):
    def __init__(self, network, optimizer, grad_sum, sens=1.0):
        super().__init__(auto_prefix=False)
        self.network = network
        self.network.set_grad()
        self.network.add_flags(defer_inline=True)
        self.weights = ParameterTuple(network.trainable_params())
        self.optimizer = optimizer
        self.grad_sum = grad_sum
        self.grad = ops.GradOperation(get_by_list=True, sens_param=True)
        self.sens = sens
        self.hyper_map = ops.HyperMap()

    def construct(self, *inputs):
        loss = self.network(*inputs)
        sens = ops.fill(loss.dtype, loss.shape, self.sens)
        grads = self.grad(self.network, self.weights)(*inputs, sens)
        return ops.depend(loss, self.hyper_map(ops.partial(_sum_op), self.grad_sum, grads))


class TrainOptim(nn.Cell):
    def __init__(self, optimizer, grad_sum):
        super().__init__(auto_prefix=False)
        self.optimizer = optimizer
        self.grad_sum = grad_sum

    def construct(self):
        return self.optimizer(self.grad_sum)


class TrainClear(nn.Cell):
    def __init__(self, grad_sum, zeros):
        super().__init__(auto_prefix=False)
        self.grad_sum = grad_sum
        self.zeros = zeros
        self.hyper_map = ops.HyperMap()

    def construct(self):
        return self.hyper_map(ops.partial(_clear_op), self.grad_sum, self.zeros)


def main(folder, batches, batch_size=32, mini_steps=4):
    context.set_context(mode=context.GRAPH_MODE, device_target="CPU")
    network = LeNet5(10)
    optimizer = nn.Momentum(network.trainable_params(), 0.01, 0.9)
    grad_sum = optimizer.parameters.clone(prefix="grad_sum", init="zeros")
    zeros = optimizer.parameters.clone(prefix="zeros", init="zeros")
    with_loss = nn.WithLossCell(network, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"))
    forward_backward = TrainForwardBackward(with_loss, optimizer, grad_sum, 1.0).set_train()
    step, clear = TrainOptim(optimizer, grad_sum).set_train(), TrainClear(grad_sum, zeros).set_train()
    helper = DatasetHelper(create_dataset(folder, batch_size), dataset_sink_mode=False, epoch_num=1)
    begun, first, started = time.perf_counter(), 0.0, 0.0
    with contextlib.redirect_stdout(io.StringIO()):  # it prints, as in the tutorial, but not onto our result
        for k, batch in enumerate(helper):
            if k == WARM_UP:
                started = time.perf_counter()
            if k == WARM_UP + batches:
                break
            loss = forward_backward(*batch)
            first = first or time.perf_counter() - begun
            if (k + 1) % mini_steps == 0:
                print("epoch:", 1, "step:", (k + 1) // mini_steps, "loss is ", loss)
                step()
                clear()
    seconds = time.perf_counter() - started
    return {"samples_per_sec": batches * batch_size / seconds, "first_s": first, "peak_mb": peak_mb()}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], *map(int, sys.argv[2:]))))
