"""CIFAR-10 as an image folder of JPEG files, so that the pipeline of photographs runs on real pictures anywhere.

The pictures stay 32 × 32; the pipeline enlarges them. The folder says so in its file `DATASET`, which runs on it carry
as the name of their data: such a number is never ImageNet's.
"""

from pathlib import Path

import numpy as np
from PIL import Image

from msaccel.data import cifar
from msaccel.data.image_folder.listing import ABOUT
from msaccel.data.samples import Labels
from msaccel.data.transforms import Images

NAME = "cifar10-upscaled"
QUALITY = 95


def write(source: Path, root: Path, limit: int | None = None) -> None:
    """Writes ``<root>/{train,val}/<class>/<number>.jpg``.

    Args:
        source: folder with the files of CIFAR-10's binary version.
        root: an empty folder.
        limit: only the first so many of each split, in file order.

    Raises:
        DataError: the source is damaged.
        OSError: something cannot be written.
    """
    for split, files in (("train", cifar.TRAIN), ("val", cifar.TEST)):
        images, labels = cifar.read(source, files)
        _write_split(root / split, images[:limit], labels[:limit])
    (root / ABOUT).write_text(f"{NAME}\n")


def _write_split(folder: Path, images: Images, labels: Labels) -> None:
    for name in cifar.CLASSES:
        (folder / name).mkdir(parents=True)
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        picture = Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0)))
        picture.save(folder / cifar.CLASSES[label] / f"{number:05d}.jpg", quality=QUALITY, subsampling=0)
