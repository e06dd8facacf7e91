"""Image folders: what is listed and shown, exactly once, whatever threads do; and every kind of damage."""

import errno
import io
import logging
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from PIL import Image

from msaccel.data.dataset import DatasetSplits
from msaccel.data.image_folder import decode
from msaccel.data.image_folder.listing import ImageListing
from msaccel.data.load import load_datasets
from msaccel.data.sampler import Sampler
from msaccel.data.sets.imagenet import ImageFolderSettings
from msaccel.errors import DataError

from .conftest import assert_one_sentence

LIMITS = {"limit_train": None, "limit_eval": None, "val_fraction": 0.0}
SETTINGS = ImageFolderSettings(
    name="imagenet", transform="imagenet", root=None, format="folder", cache="", augment=True, workers=2,
    on_broken="stop", **LIMITS,
)  # fmt: skip
CLASSES, TRAIN, VAL = ("ant", "bee", "cow"), 5, 3
SIZE = 16
SHAPE = (3, SIZE, SIZE)


def jpeg(seed: int, size: tuple[int, int] = (40, 30), kind: str = "JPEG") -> bytes:
    """A picture of coarse noise."""
    coarse = np.random.default_rng(seed).integers(256, size=(6, 8, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(coarse).resize(size).save(stream, kind)
    return stream.getvalue()


def make_tree(root: Path) -> Path:
    """15 training and 9 evaluation pictures in 3 classes."""
    for split, count in (("train", TRAIN), ("val", VAL)):
        for label, name in enumerate(CLASSES):
            folder = root / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                (folder / f"{number}.JPEG").write_bytes(jpeg(1000 * label + 10 * number + len(split)))
    return root


@pytest.fixture
def settings(tmp_path: Path) -> ImageFolderSettings:
    return replace(SETTINGS, root=str(make_tree(tmp_path / "tree")), cache=str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DatasetSplits:
    return load_datasets(replace(SETTINGS, root=str(make_tree(tmp_path_factory.mktemp("shared") / "tree"))), 0, SHAPE)


def tree(settings: ImageFolderSettings) -> Path:
    return Path(settings.root or "")


def test_classes_and_pictures_are_sorted_by_name(settings: ImageFolderSettings) -> None:
    (tree(settings) / "train" / "bee" / "00.png").write_bytes(jpeg(1, kind="PNG"))
    (tree(settings) / "train" / ".hidden").write_text("")
    found = load_datasets(settings, 0, SHAPE)
    assert (found.name, found.classes) == ("imagenet", 3)
    assert found.train.labels.tolist() == [0] * 5 + [1] * 6 + [2] * 5 and found.test.labels.tolist() == [
        0,
        0,
        0,
        1,
        1,
        1,
        2,
        2,
        2,
    ]
    assert found.train.shape == (3, SIZE, SIZE) and found.train.labels.dtype == np.int32
    names = [Path(found.train.source.name(number)).name for number in range(5, 8)]  # type: ignore[attr-defined]
    assert names == ["0.JPEG", "00.png", "1.JPEG"]


def test_evaluation_shows_the_middle_normalised(data: DatasetSplits) -> None:
    images, labels = data.test.batch(np.array([4]))
    with Image.open(data.test.source.name(4)) as picture:  # type: ignore[attr-defined]
        resized = picture.convert("RGB").resize((24, 18), Image.Resampling.BILINEAR).crop((4, 1, 20, 17))
    expected = (np.asarray(resized) / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    np.testing.assert_allclose(images[0], expected.transpose(2, 0, 1), rtol=1e-5, atol=1e-6)
    assert images.dtype == np.float32 and labels.tolist() == [1]


def test_a_training_picture_without_crop_is_the_whole_and_mirrored_half_of_the_time() -> None:
    picture = decode.decode(jpeg(3, (32, 32)))
    whole = [1 - 1e-12, 0.5, 0.5, 0.5] * 10  # all of the area, a square
    plain, mirrored = (np.asarray(decode.training_view(picture, 32, [flip, *whole])) for flip in (0.5, 0.49))
    np.testing.assert_array_equal(plain, np.asarray(picture))
    np.testing.assert_array_equal(mirrored, plain[:, ::-1])


@pytest.mark.parametrize("size", [(1, 1), (300, 7), (7, 300), (30_000, 2), (224, 224)])
def test_any_shape_fills_the_square(size: tuple[int, int]) -> None:
    picture = Image.new("RGB", size, (255, 0, 0))
    for view in (decode.evaluation_view(picture, 64), decode.training_view(picture, 64, [0.7] * 41)):
        assert view.size == (64, 64) and (np.asarray(view) == (255, 0, 0)).all()


@pytest.mark.parametrize("mode", ["L", "CMYK", "RGBA", "P", "LA", "1", "I;16"])
def test_other_colours_become_three_channels(mode: str) -> None:
    stream = io.BytesIO()
    grey = Image.new("L", (8, 8), 128)
    picture = Image.new(mode, (8, 8), 99) if mode == "I;16" else grey.convert("RGB").convert(mode)
    picture.save(stream, "JPEG" if mode == "CMYK" else "PNG")
    assert decode.decode(stream.getvalue()).mode == "RGB"


@hypothesis_settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(micro=st.integers(1, 3), steps=st.integers(1, 2), ranks=st.integers(1, 3), workers=st.integers(1, 4))
def test_neither_ranks_nor_windows_nor_workers_change_a_pixel(
    data: DatasetSplits, micro: int, steps: int, ranks: int, workers: int
) -> None:
    order = Sampler(15, 0, micro, steps, ranks)
    whole = [ranks[0][0] for ranks in Sampler(15, 0, order.global_batch).epoch(2)]
    pieces = [indices for ranks in order.epoch(2) for micro_batches in ranks for indices in micro_batches]
    expected = [data.train.batch(indices, 2) for indices in whole]
    found = list(replace(data.train, workers=workers).batches(iter(pieces), 2, ahead=workers))  # type: ignore[type-var]
    for part in (0, 1):
        everything = np.concatenate([batch[part] for batch in expected])
        np.testing.assert_array_equal(np.concatenate([batch[part] for batch in found]), everything)


def test_epochs_differ_and_validation_is_shown_as_evaluated(settings: ImageFolderSettings) -> None:
    found = load_datasets(replace(settings, val_fraction=0.2), 0, SHAPE)
    plain = load_datasets(replace(settings, augment=False), 0, SHAPE)
    assert found.validation is not None and [len(found.train), len(found.validation)] == [12, 3]
    everything = np.arange(12)
    assert (found.train.batch(everything, 0)[0] != found.train.batch(everything, 1)[0]).any()
    held_out = found.validation.positions  # type: ignore[attr-defined]
    np.testing.assert_array_equal(found.validation.batch(np.arange(3))[0], plain.train.batch(held_out, 5)[0])


def test_every_picture_is_evaluated_once(data: DatasetSplits) -> None:
    wanted = [np.arange(first, min(first + 4, 9)) for first in range(0, 9, 4)]
    batches = list(data.test.batches(wanted))
    assert [len(labels) for _, labels in batches] == [4, 4, 1]
    np.testing.assert_array_equal(np.concatenate([labels for _, labels in batches]), data.test.labels)


def test_only_so_many_batches_are_decoded_ahead(data: DatasetSplits) -> None:
    asked = []

    def wanted() -> Iterator[np.ndarray]:
        for first in range(9):
            asked.append(first)
            yield np.array([first])

    batches = data.test.batches(wanted(), ahead=2)
    next(batches)
    assert asked == [0, 1, 2]
    batches.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("images")], "threads end with it"


def test_smaller_pictures_are_those_of_a_smaller_network(settings: ImageFolderSettings) -> None:
    """Resized at once from what was decoded, with the crop and flip of the epoch."""
    full, small = (load_datasets(settings, 0, (3, size, size)) for size in (SIZE, 12))
    for split, other in ((full.train, small.train), (full.test, small.test)):
        resized, indices = split.resized(12, 12), np.arange(4)
        assert resized.shape == (3, 12, 12)
        for epoch in (None, 0, 3):
            for found, expected in zip(resized.batch(indices, epoch), other.batch(indices, epoch), strict=True):
                np.testing.assert_array_equal(found, expected)


def test_limits_take_the_first_in_file_order(settings: ImageFolderSettings) -> None:
    found = load_datasets(replace(settings, limit_train=7, limit_eval=2), 0, SHAPE)
    assert found.train.labels.tolist() == [0] * 5 + [1] * 2 and len(found.test) == 2 and found.classes == 3
    with pytest.raises(DataError) as error:
        load_datasets(replace(settings, limit_eval=10), 0, SHAPE)
    assert_one_sentence(error, "data.limit_eval=10", "9")


def test_the_folder_names_the_data_set(settings: ImageFolderSettings) -> None:
    (tree(settings) / "DATASET").write_text("\n cifar10-upscaled\n")
    assert load_datasets(settings, 0, SHAPE).name == "cifar10-upscaled"


def test_digests_tell_lists_of_files_and_limits_apart(settings: ImageFolderSettings) -> None:
    first = load_datasets(settings, 0, SHAPE).digest
    assert (
        load_datasets(settings, 0, SHAPE).digest == first
        and load_datasets(replace(settings, workers=1), 0, SHAPE).digest == first
    )
    others = [
        load_datasets(replace(settings, limit_train=3), 0, SHAPE).digest,
        load_datasets(settings, 0, (3, 32, 32)).digest,
    ]
    (tree(settings) / "val" / "cow" / "2.JPEG").write_bytes(jpeg(5, (41, 30)))
    others.append(load_datasets(settings, 0, SHAPE).digest)
    assert len({first, *others}) == 4


def damage(root: Path, kind: str) -> tuple[str, str]:
    """Does it, and returns the name and the reason that have to be said."""
    folder = root / "train" / "bee"
    target, names = folder / "3.JPEG", {"text": "notes.txt", "pipe": "p.jpg", "folder": "f.jpg"}
    if kind == "empty":
        target.write_bytes(b"")
        return "train/bee/3.JPEG", "is empty"
    if kind == "text":
        (folder / names[kind]).write_text("about")
        return "train/bee/notes.txt", "is no image"
    if kind == "pipe":
        os.mkfifo(folder / names[kind])
        return "train/bee/p.jpg", "is no regular file"
    if kind == "folder":
        (folder / names[kind]).mkdir()
        return "train/bee/f.jpg", "is a folder inside a class"
    if kind == "link out":
        (root.parent / "secret.jpg").write_bytes(jpeg(0))
        (folder / "l.jpg").symlink_to(root.parent / "secret.jpg")
        return "train/bee/l.jpg", "is a link that leads out"
    if kind == "class link out":
        (root.parent / "dee").mkdir()
        (root / "train" / "dee").symlink_to(root.parent / "dee")
        return "train/dee", "is a link that leads out"
    if kind == "dangling":
        (folder / "l.jpg").symlink_to(root / "nowhere.jpg")
        return "train/bee/l.jpg", "is no regular file"
    if kind == "empty class":
        (root / "train" / "dee").mkdir()
        return "train/dee", "is a class without images"
    if kind == "unseen class":
        for picture in (root / "val" / "bee").iterdir():
            picture.unlink()
        return "val/bee", "is a class without images"
    assert kind == "stray file"
    (root / "train" / "a.jpg").write_bytes(jpeg(0))
    return "train/a.jpg", "is no folder of a class"


LISTED = [
    *("empty", "text", "pipe", "folder", "link out", "class link out", "dangling", "empty class", "unseen class"),
    "stray file",
]


@pytest.mark.parametrize("kind", LISTED)
def test_what_cannot_be_used_is_an_error_or_left_out(
    settings: ImageFolderSettings, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    name, reason = damage(tree(settings), kind)
    with pytest.raises(DataError) as error:
        load_datasets(settings, 0, SHAPE)
    count = 2 if kind == "empty class" else 1  # it is empty in both splits
    assert_one_sentence(error, f"{count} in {settings.root}", f"{name} {reason}", "data.on_broken=skip")
    with caplog.at_level(logging.WARNING):
        found = load_datasets(replace(settings, on_broken="skip"), 0, SHAPE)
    assert name in caplog.text and "left out" in caplog.text
    assert len(found.train) == (14 if kind == "empty" else 15) and len(found.test) == (
        6 if kind == "unseen class" else 9
    )
    found.train.batch(np.arange(len(found.train)), 0)


def test_a_link_inside_of_the_root_is_a_picture(settings: ImageFolderSettings) -> None:
    (tree(settings) / "train" / "ant" / "9.jpg").symlink_to(tree(settings) / "train" / "bee" / "1.JPEG")
    assert len(load_datasets(settings, 0, SHAPE).train) == 16


def bomb(side: int) -> bytes:
    """A PNG of a few KB that holds a very large picture."""
    stream = io.BytesIO()
    Image.new("1", (side, side)).save(stream, "PNG")
    return stream.getvalue()


BROKEN = {
    "cut off": (lambda: jpeg(1)[:500], "cannot be decoded"),
    "no picture": (lambda: b"<html>404</html>", "cannot be decoded"),
    "another format": (lambda: jpeg(1, kind="GIF"), "cannot be decoded"),
    "head alone": (lambda: jpeg(1)[:3], "cannot be decoded"),
    "broken PNG": (lambda: jpeg(1, kind="PNG")[:-300] + b"x" * 300, "cannot be decoded"),
    "large": (lambda: bomb(10_000), "has 10000 × 10000 pixels, more than 89,478,485"),
    "bomb": (lambda: bomb(20_000), "has more than 178,956,970 pixels"),
}
ZEROS = {"JPEG": "has no end", "PNG": "has a wrong checksum"}  # what Pillow shows as grey


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_picture_is_named_when_it_is_met(settings: ImageFolderSettings, kind: str) -> None:
    content, reason = BROKEN[kind]
    broken = tree(settings) / "train" / "bee" / "3.JPEG"
    broken.write_bytes(content())
    train = load_datasets(settings, 0, SHAPE).train
    begun = time.monotonic()
    for draw in (
        lambda: train.batch(np.arange(15), 0),
        lambda: list(train.batches([np.array([i]) for i in range(15)])),
    ):
        with pytest.raises(DataError) as error:
            draw()
        assert_one_sentence(error, f"{broken} {reason}", "data.on_broken=skip")
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_picture_is_left_out_before_training(settings: ImageFolderSettings, kind: str) -> None:
    (tree(settings) / "train" / "bee" / "3.JPEG").write_bytes(BROKEN[kind][0]())
    found = load_datasets(replace(settings, on_broken="skip"), 0, SHAPE)
    assert found.train.labels.tolist() == [0] * 5 + [1] * 4 + [2] * 5
    found.train.batch(np.arange(14), 0)


@pytest.mark.parametrize("kind", ZEROS)
def test_a_picture_whose_end_was_lost_is_found_by_looking(settings: ImageFolderSettings, kind: str) -> None:
    content = jpeg(1, (400, 300) if kind == "JPEG" else (40, 30), kind)
    damaged = content[: len(content) // 2] + bytes(10**6) if kind == "JPEG" else content[:-300] + bytes(300)
    decode.check(content)
    decode.decode(damaged)
    with pytest.raises(decode.DecodeError, match=ZEROS[kind]):
        decode.check(damaged)
    (tree(settings) / "train" / "bee" / "3.JPEG").write_bytes(damaged)
    assert len(load_datasets(replace(settings, on_broken="skip"), 0, SHAPE).train) == 14


def test_pictures_are_looked_through_once(settings: ImageFolderSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tree(settings) / "val" / "ant" / "0.JPEG"
    content = target.read_bytes()
    target.write_bytes(content[:-200])
    skipping = replace(settings, on_broken="skip")
    assert len(load_datasets(skipping, 0, SHAPE).test) == 8
    looked = []
    monkeypatch.setattr(decode, "check", looked.append)
    assert len(load_datasets(skipping, 0, SHAPE).test) == 8 and not looked
    target.write_bytes(content)
    monkeypatch.undo()
    assert len(load_datasets(skipping, 0, SHAPE).test) == 9, "a changed file is looked at again"


@pytest.mark.parametrize("progressive", [False, True])
def test_a_picture_with_something_behind_its_end_is_whole(progressive: bool) -> None:
    """As phones append a film. Bytes that look like a scan may be in it; a preview within the head has an end, too."""
    stream, film = io.BytesIO(), np.random.default_rng(0).bytes(300_000) + b"\xff\xda and no end"
    preview = b"Exif\0\0" + jpeg(2)
    Image.open(io.BytesIO(jpeg(1, (400, 300)))).save(stream, "JPEG", exif=preview, progressive=progressive)
    content = stream.getvalue()
    decode.check(content)
    decode.check(content + film)
    with pytest.raises(decode.DecodeError, match="truncated" if progressive else "has no end"):
        decode.check(content[: len(content) // 2] + bytes(10**6))


def test_a_file_that_could_not_be_read_is_looked_at_again(
    settings: ImageFolderSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    skipping, read = replace(settings, on_broken="skip"), ImageListing.read

    def failing(self: ImageListing, number: int) -> bytes:
        if self.names[number].endswith("ant/0.JPEG"):
            raise OSError(errno.EIO, "Input/output error")
        return read(self, number)

    tree(settings)
    with monkeypatch.context() as patch:
        patch.setattr(ImageListing, "read", failing)
        assert len(load_datasets(skipping, 0, SHAPE).train) == 14
    assert len(load_datasets(skipping, 0, SHAPE).train) == 15


def test_a_damaged_record_of_looking_is_made_again(settings: ImageFolderSettings) -> None:
    skipping = replace(settings, on_broken="skip")
    load_datasets(skipping, 0, SHAPE)
    for file in Path(settings.cache, "scans").glob("*.json"):
        file.write_text("{")
    assert len(load_datasets(skipping, 0, SHAPE).train) == 15


def test_a_file_that_vanishes_is_named(settings: ImageFolderSettings) -> None:
    train = load_datasets(settings, 0, SHAPE).train
    (tree(settings) / "train" / "ant" / "0.JPEG").unlink()
    with pytest.raises(DataError) as error:
        train.batch(np.array([0]), 0)
    assert_one_sentence(error, "ant/0.JPEG cannot be read (No such file")


@pytest.mark.parametrize("missing", ["tree", "train", "val"])
def test_a_missing_split_is_refused(settings: ImageFolderSettings, missing: str) -> None:
    folder = tree(settings) if missing == "tree" else tree(settings) / missing
    folder.rename(folder.with_name("elsewhere"))
    with pytest.raises(DataError) as error:
        load_datasets(settings, 0, SHAPE)
    assert_one_sentence(error, f"data.root={settings.root}", "train")


def test_the_other_name_of_the_evaluation_split(settings: ImageFolderSettings) -> None:
    (tree(settings) / "val").rename(tree(settings) / "validation_preprocess")
    assert len(load_datasets(settings, 0, SHAPE).test) == 9


def test_a_class_that_training_has_not_is_refused(settings: ImageFolderSettings) -> None:
    (tree(settings) / "val" / "cow").rename(tree(settings) / "val" / "dog")
    with pytest.raises(DataError) as error:
        load_datasets(settings, 0, SHAPE)
    assert_one_sentence(error, "val/dog is a class that", "/train does not have")


def test_nothing_that_can_be_used_is_refused(settings: ImageFolderSettings) -> None:
    for picture in tree(settings).glob("val/*/*"):
        picture.write_bytes(b"GIF89a")
    with pytest.raises(DataError) as error:
        load_datasets(replace(settings, on_broken="skip"), 0, SHAPE)
    assert_one_sentence(error, "no evaluation image that can be decoded")
    for picture in tree(settings).glob("val/*/*"):
        picture.unlink()
    with pytest.raises(DataError) as error:
        load_datasets(replace(settings, on_broken="skip"), 0, SHAPE)
    assert_one_sentence(error, "val has no image that can be used (val/ant is a class without images)")


def test_grey_of_16_bits_keeps_its_upper_8() -> None:
    """Pillow makes white of all but the darkest 256 of 65,536 shades."""
    shades = np.arange(0, 65536, 655, np.uint16).reshape(1, -1)
    stream = io.BytesIO()
    Image.fromarray(shades).save(stream, "PNG")
    found = np.asarray(decode.decode(stream.getvalue()))
    assert (found == (shades >> 8)[:, :, None]).all()
