"""The layers of a network: its weights in groups, from the first layer to the last."""

from __future__ import annotations

from mindspore import Parameter, nn


def layers_of(network: nn.Cell) -> list[list[Parameter]]:
    """The trainable parameters of each layer, in the order in which the network defines its cells.

    A layer is a cell that owns a tensor of two or more dimensions, such as a convolution, with its bias. A cell that
    owns vectors alone, such as a norm, belongs to the layer before it; with none before, to the first. A tensor that
    several cells share belongs to the last of them.
    """
    owners: dict[int, nn.Cell] = {}
    for _, cell in network.cells_and_names():
        for parameter in _own(cell):
            owners[id(parameter)] = cell
    layers: list[list[Parameter]] = []
    leading: list[Parameter] = []
    for _, cell in network.cells_and_names():
        weights = [parameter for parameter in _own(cell) if owners[id(parameter)] is cell]
        if any(weight.ndim > 1 for weight in weights):
            layers.append(leading + weights)
            leading = []
        elif layers:
            layers[-1] += weights
        else:
            leading += weights
    return layers


def _own(cell: nn.Cell) -> list[Parameter]:
    """The trainable parameters that belong to the cell itself."""
    return [parameter for _, parameter in cell.parameters_and_names(expand=False) if parameter.requires_grad]
