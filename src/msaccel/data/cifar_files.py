"""CIFAR-10's binary version: records of a label and 3 × 32 × 32 bytes, 10,000 in each of six files.

Source: A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009; the format is described at
https://www.cs.toronto.edu/~kriz/cifar.html.
"""

from pathlib import Path

import numpy as np
from PIL import Image

from msaccel.data.dataset import Labels
from msaccel.data.files import explain_read_errors, open_bounded
from msaccel.data.image_folder.listing import NAME_FILE
from msaccel.data.transforms import Images
from msaccel.errors import DataError

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = ("test_batch.bin",)
RECORDS = 10_000  # of a file
JPEG_NAME = "cifar10-upscaled"
JPEG_QUALITY = 95
_SHAPE = (3, 32, 32)
_RECORD_BYTES = 1 + 3 * 32 * 32


def read(folder: Path, files: tuple[str, ...]) -> tuple[Images, Labels]:
    """Images ``(n, 3, 32, 32)`` and labels ``(n,)`` of some files, in their order.

    Raises:
        DataError: a file cannot be read, or holds something else.
    """
    contents = []
    for path in (folder / name for name in files):
        with explain_read_errors(path), open_bounded(path) as file:
            content = np.fromfile(file, np.uint8, RECORDS * _RECORD_BYTES + 1)
        if not content.size or content.size % _RECORD_BYTES or (content[::_RECORD_BYTES] >= len(CLASSES)).any():
            raise DataError(f"{path} holds no records of CIFAR-10's binary version: put the right file there")
        contents.append(content.reshape(-1, _RECORD_BYTES))
    records = np.concatenate(contents)
    images = np.ascontiguousarray(records[:, 1:]).reshape(-1, *_SHAPE)
    return images, records[:, 0].astype(np.int32)


def write_image_folder(source: Path, root: Path, limit: int | None = None) -> None:
    """Writes CIFAR-10 as JPEG files ``<root>/{train,val}/<class>/<number>.jpg``, to try an image folder anywhere.

    The images stay 32 × 32; a job that reads the folder enlarges them. The folder's file `DATASET` gives the data a
    name of their own, so that no result on them is taken for one on ImageNet.

    Args:
        source: folder with the files of CIFAR-10's binary version.
        root: an empty folder.
        limit: only the first so many of each split, in file order.

    Raises:
        DataError: the source is damaged.
        OSError: something cannot be written.
    """
    for split, files in (("train", TRAIN), ("val", TEST)):
        images, labels = read(source, files)
        for name in CLASSES:
            (root / split / name).mkdir(parents=True)
        for number, (image, label) in enumerate(zip(images[:limit], labels[:limit], strict=True)):
            path = root / split / CLASSES[label] / f"{number:05d}.jpg"
            Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))).save(
                path, quality=JPEG_QUALITY, subsampling=0
            )
    (root / NAME_FILE).write_text(f"{JPEG_NAME}\n")
