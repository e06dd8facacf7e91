"""`data`: downloads data sets ahead of a job, checks image folders, and converts them."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from msaccel.cli.commands import number_from
from msaccel.data.download.sources import Source
from msaccel.data.sets import cifar10, data_sets
from msaccel.files import expand_user


def options(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    for name in _sources():
        _cache(actions.add_parser(name, help="download it into the cache and check it"))
    jpeg = actions.add_parser("cifar10-jpeg", help="write CIFAR-10 as an image folder of JPEG files")
    jpeg.add_argument("--output", required=True, type=Path, help="a new folder")
    jpeg.add_argument("--limit", type=number_from(int, 1), help="only the first n images of each split")
    _cache(jpeg)
    check = actions.add_parser("check", help="check all images of a folder and list the broken ones")
    record = actions.add_parser("to-mindrecord", help="convert an image folder to MindRecord files")
    for of_a_folder in (check, record):
        of_a_folder.add_argument("--root", required=True, type=Path, help="a folder with train and val")
        of_a_folder.add_argument("--workers", type=number_from(int, 1), default=2, help="threads that decode")
        _cache(of_a_folder)
    record.add_argument("--output", required=True, type=Path, help="a new folder")
    record.add_argument("--on-broken", choices=("stop", "skip"), default="stop")


def run(options: argparse.Namespace) -> int:
    if options.action in _sources():
        return _fetch(options)
    actions = {"cifar10-jpeg": _cifar10_jpeg, "check": _check, "to-mindrecord": _to_mindrecord}
    return actions[options.action](options)


def _sources() -> dict[str, Source]:
    """Where the data sets come from that can be downloaded, by name."""
    return {name: module.SOURCE for name, module in data_sets().items() if hasattr(module, "SOURCE")}


def _fetch(options: argparse.Namespace) -> int:
    from msaccel.data.download.fetch import locate

    print(locate(_sources()[options.action], None, options.cache))
    return 0


def _cifar10_jpeg(options: argparse.Namespace) -> int:
    from msaccel.data.cifar_files import write_image_folder
    from msaccel.data.download.fetch import locate
    from msaccel.data.download.install import new_folder

    output = expand_user(options.output)
    with new_folder(output) as folder:
        write_image_folder(locate(cifar10.SOURCE, None, options.cache), folder, options.limit)
    print(output)
    return 0


def _check(options: argparse.Namespace) -> int:
    from msaccel.data.image_folder.listing import list_splits
    from msaccel.data.image_folder.scan import without_broken

    root = expand_user(options.root)
    found = 0
    for listing in list_splits(root):
        decodable, undecodable = without_broken(listing, options.cache, options.workers)
        problems = [*listing.problems, *undecodable]
        print(*problems, sep="\n", end="\n" if problems else "")
        print(f"{len(decodable):,} images in {len(decodable.classes):,} classes; problems: {len(problems):,}")
        found += len(problems)
    return 1 if found else 0


def _to_mindrecord(options: argparse.Namespace) -> int:
    from msaccel.data.download.install import new_folder
    from msaccel.data.image_folder import mindrecord
    from msaccel.data.image_folder.listing import read_data_name
    from msaccel.data.image_folder.load import list_usable

    root, output = expand_user(options.root), expand_user(options.output)
    with new_folder(output) as part:
        splits = list_usable(root, options.on_broken, options.cache, options.workers, decode_all=True)
        mindrecord.write(splits, read_data_name(root, "imagenet"), part)
    print(output)
    return 0


def _cache(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cache", type=Path, default=os.environ.get("MSACCEL_CACHE", "~/.cache/msaccel"))
