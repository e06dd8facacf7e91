"""Rounding errors of the operators, of MindSpore's own and of PyTorch's, against PyTorch in float64.

`python benchmarks/errors.py [--cases N] [--only OPERATOR ...]` draws shapes, inputs and gradients of the outputs, and
compares outputs and gradients in float32: ‖found − expected‖ / ‖expected‖ for each tensor. Prints the mean and the
largest of these over all cases, and writes a table to `benchmarks/errors.md`. Needs PyTorch (`make bench` installs it).
"""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path

import mindspore as ms
import numpy as np
import torch
from bench import machine
from error_cases import Case, Draw, normal
from error_convolutions import CONVOLUTIONS
from error_layers import LAYERS
from error_updates import UPDATES
from mindspore import Tensor, nn

from msaccel import kernels

HERE = Path(__file__).parent
SIDES = ("msaccel", "MindSpore", "PyTorch")
OPERATORS = CONVOLUTIONS | LAYERS | UPDATES


def of_cell(cell: nn.Cell, case: Case, dy: np.ndarray) -> list[np.ndarray]:
    """The output, and the gradients of all inputs if the case has some."""
    inputs = case.inputs
    weights = cell.trainable_params()
    assert len(weights) == len(inputs) - 1
    for weight, value in zip(weights, inputs[1:], strict=True):
        weight.set_data(Tensor(value))

    def scalar(x: Tensor) -> tuple[Tensor, Tensor]:
        y = cell(x)
        return (y * Tensor(dy)).sum(), y

    cell.set_train()
    if not case.gradients:
        return [cell(Tensor(inputs[0])).asnumpy()]
    (_, y), gradients = ms.value_and_grad(scalar, 0, ms.ParameterTuple(weights) or None, has_aux=True)(
        Tensor(inputs[0])
    )
    tensors = [y, *((gradients[0], *gradients[1]) if weights else (gradients,))]
    return [tensor.asnumpy() for tensor in tensors]


def of_torch(case: Case, dy: np.ndarray, dtype: torch.dtype) -> list[np.ndarray]:
    inputs = [torch.from_numpy(value).to(dtype).requires_grad_() for value in case.inputs]
    y = case.torch(*inputs)
    if not case.gradients:
        return [y.detach().numpy()]
    y.backward(torch.from_numpy(dy).to(dtype))
    return [tensor.detach().numpy() for tensor in (y, *(value.grad for value in inputs))]


def errors(case: Case, draw: Draw) -> dict[str, list[float]]:
    """By side, those of the output and of each gradient."""
    with torch.no_grad():
        shape = case.torch(*map(torch.from_numpy, case.inputs)).shape
    dy = normal(draw, *shape)
    expected = of_torch(case, dy, torch.float64)
    found = {
        "msaccel": of_cell(case.own, case, dy),
        "MindSpore": of_cell(case.native, case, dy),
        "PyTorch": of_torch(case, dy, torch.float32),
    }
    return {
        side: [
            float(np.linalg.norm((one.reshape(right.shape) - right).ravel()) / np.linalg.norm(right.ravel()))
            for one, right in zip(tensors, expected, strict=True)
            if right.any()  # a row of attention to itself alone has gradients of zero
        ]
        for side, tensors in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=40, help="of each operator")
    parser.add_argument("--only", nargs="+", choices=OPERATORS, default=OPERATORS)
    given = parser.parse_args()
    ms.set_context(mode=ms.PYNATIVE_MODE)
    kernels.use_backend(kernels.select_backend("onednn", on_cpu=True))
    rows = []
    for name in given.only:
        draw = np.random.default_rng(0)
        found: dict[str, list[float]] = {side: [] for side in SIDES}
        for _ in range(given.cases):
            for side, values in errors(OPERATORS[name](draw), draw).items():
                found[side] += values
        cells = [f"{math.fsum(found[side]) / len(found[side]):.1e} ({max(found[side]):.1e})" for side in SIDES]
        rows.append(f"| {name} | {' | '.join(cells)} |")
        print(rows[-1], flush=True)
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    head = (
        f"`python benchmarks/errors.py`, {given.cases} cases of each operator, {threads} threads, PyTorch "
        f"{torch.__version__}, on {machine()}: relative errors in float32, mean (largest) over outputs and gradients:"
    )
    table = ["| operator | msaccel | MindSpore | PyTorch |", "|---|---|---|---|", *rows]
    if given.only is OPERATORS:
        (HERE / "errors.md").write_text("\n".join([head, "", *table, ""]))


if __name__ == "__main__":
    main()
