"""Weights that others trained on ImageNet name what is on photos, so layers, order and normalisation are right."""

import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from mindspore import Tensor

from msaccel import models, schema
from msaccel.data.image_folder import decode
from msaccel.errors import DataError
from tests.models import ported

pytestmark = [pytest.mark.usefixtures("graph_mode"), pytest.mark.slow]

RESNET50 = schema.ResNetSettings(
    "resnet50",
    init="default",
    classes=1000,
    depth=50,
    norm="batch",
    version="v1",
    stem="auto",
    image_size=224,
)


@pytest.fixture(scope="session")
def weights() -> Path:
    try:
        return ported.fetch(Path(os.environ.get("MSACCEL_CACHE", "~/.cache/msaccel")))
    except DataError as error:
        pytest.skip(str(error))


def photos(folder: Path) -> Iterator[tuple[bytes, int]]:
    """The files of the 20 labelled photos of foolbox 2.4.0 (MIT), from its source archive; skips without it."""
    package = ["foolbox==2.4.0", "--no-deps", "--no-binary", ":all:"]
    command = [sys.executable, "-m", "pip", "download", *package, "--no-build-isolation", "-d", str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    found = list(folder.glob("foolbox-*.tar.gz"))
    if not found:
        pytest.skip(f"foolbox cannot be fetched: {ended.stderr.strip().splitlines()[-1:]}")
    with tarfile.open(found[0]) as archive:
        for member in archive:
            if label := re.search(r"/imagenet_\d\d_(\d+)\.jpg$", member.name):
                file = archive.extractfile(member)
                assert file is not None
                yield file.read(), int(label[1])


def test_at_least_18_of_20_photos(weights: Path, tmp_path: Path) -> None:
    network = models.build(RESNET50)
    ported.load(network, weights)
    network.set_train(False)
    labelled = [
        (decode.normalise(decode.evaluation_view(decode.decode(photo), 224)), label)
        for photo, label in photos(tmp_path)
    ]
    assert len(labelled) == 20
    right = [int(network(Tensor(image[None])).asnumpy().argmax()) == label for image, label in labelled]
    assert sum(right) >= 18, right


def test_every_weight_is_used_once(weights: Path) -> None:
    arrays = ported.read(weights)
    assert sum(array.size for array in arrays.values()) == 25_636_712, "Keras's published count, biases included"
    network = models.build(RESNET50)
    shapes = {parameter.name: tuple(parameter.shape) for parameter in network.get_parameters()}
    assert {name: weight.shape for name, weight in ported.converted(arrays).items()} == shapes


def test_another_network_is_refused(weights: Path) -> None:
    ten = models.build(schema.ResNetSettings(**{**vars(RESNET50), "classes": 10}))
    with pytest.raises(DataError, match=r"model\.classes=1000"):
        ported.load(ten, weights)
