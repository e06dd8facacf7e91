"""Operators that write parameters in place: MindSpore keeps the order of what reads and writes these in a graph."""

from collections.abc import Callable

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, ParameterTuple, Tensor, nn

from msaccel.kernels import Accumulate, BatchNorm2d, Momentum
from msaccel.kernels.adasum import RevertToBase, Subtract

pytestmark = pytest.mark.usefixtures("graph_mode")
X = Tensor(np.random.default_rng(0).standard_normal((3, 2, 4, 4)).astype(np.float32))
Case = tuple[Parameter, nn.Cell, tuple[object, ...]]  # what is written, by which cell, and the inputs of that


def parameter(name: str, value: float = 1.0) -> Parameter:
    return Parameter(Tensor([value], ms.float32), name)


def batch_norm() -> Case:
    norm = BatchNorm2d(2).set_train()
    return norm.moving_variance, norm, (X,)


def momentum() -> Case:
    weight = parameter("weight")
    optimizer = Momentum([weight], [0.0], learning_rate=0.5, momentum=0.0)
    return weight, optimizer, ((Tensor([1.0], ms.float32),),)


def accumulate() -> Case:
    total = parameter("total")
    return total, Accumulate(ParameterTuple([total])), ((Tensor([1.0], ms.float32),), Tensor(False))


def revert() -> Case:
    weight = parameter("weight")
    back = RevertToBase(ParameterTuple([weight]), ParameterTuple([parameter("base", 3.0)]))
    return weight, back, (Tensor(0.0),)


def subtract() -> Case:
    weight = parameter("weight")
    return weight, Subtract(ParameterTuple([weight])), ((Tensor([0.25], ms.float32),),)


@pytest.mark.parametrize("make", [batch_norm, momentum, accumulate, revert, subtract])
def test_a_parameter_is_read_as_it_was_before_and_after_it_was_written(make: Callable[[], Case]) -> None:
    written, write, inputs = make()

    class Between(nn.Cell):
        def construct(self) -> tuple[Tensor, Tensor, Tensor]:
            before = written * 1
            write(*inputs)
            once = written * 1
            write(*inputs)
            return before, once, written * 1

    start = written.asnumpy().copy()
    before, once, twice = (value.asnumpy() for value in Between()())
    np.testing.assert_array_equal(before, start)
    np.testing.assert_array_equal(twice, written.asnumpy())
    assert (once != before).all() and (make is revert) == (once == twice).all()
