"""Real jobs on colour pictures: CIFAR-10 from memory, and its JPEG files through the pipeline of photographs."""

from pathlib import Path

import pytest

from tests.running import Store

pytestmark = pytest.mark.slow
RESNET18 = ("model=resnet50", "model.depth=18", "train.max_updates=2")


def test_cifar10_trains_from_memory(store: Store, cifar10: Path) -> None:
    ended = store.run(*RESNET18, "data=cifar10", "data.limit_train=256", "data.limit_eval=64", f"data.root={cifar10}")
    assert ended.returncode == 0, ended.stderr
    (run,) = store.runs()
    assert run.data.tags["data"] == "cifar10" and run.data.params["model.image_size"] == "32"
    assert run.data.metrics["time/input_s"] < 0.1 * run.data.metrics["time/train_s"]


def test_a_tree_of_jpeg_files_trains(store: Store, tree: Path) -> None:
    """Whatever the workers, tests/data/test_image_folder.py has the same pixels."""
    data = ("data=imagenet", f"data.root={tree}", "data.limit_eval=32", "data.workers=3")
    ended = store.run(*RESNET18, "model.image_size=64", *data, "train.batch_size=16")
    assert ended.returncode == 0, ended.stderr
    assert "the data is cifar10-upscaled" in ended.stdout
    (run,) = store.runs()
    assert run.data.tags["data"] == "cifar10-upscaled"
    assert run.data.metrics["time/input_s"] < 0.2 * run.data.metrics["time/train_s"]


@pytest.mark.soak
def test_two_real_ranks_see_what_one_sees(store: Store, tree: Path) -> None:
    small = (
        *RESNET18,
        "model.norm=group",
        "model.image_size=32",
        "data=imagenet",
        f"data.root={tree}",
        "data.limit_eval=9",
    )
    for split in (("train.batch_size=16",), ("train.batch_size=8", "device=cpu4", "device.ranks_per_server=2")):
        ended = store.run(*small, *split)
        assert ended.returncode == 0, ended.stderr
    one, two = (store.history(run) for run in store.runs())
    for name in ("train/loss", "grad/norm", "final/loss"):
        assert [value for _, value in one[name]] == pytest.approx([value for _, value in two[name]], rel=1e-4), name


def test_a_broken_picture_ends_a_job_in_one_sentence(store: Store, tree: Path) -> None:
    broken = store.folder / "tree"
    broken.mkdir()
    for split in ("train", "val"):
        (broken / split / "cat").mkdir(parents=True)
        for picture in sorted((tree / split / "cat").iterdir()):
            (broken / split / "cat" / picture.name).write_bytes(picture.read_bytes())
    victim = sorted((broken / "train" / "cat").iterdir())[-1]
    victim.write_bytes(victim.read_bytes()[:400])
    small = (*RESNET18, "model.depth=8", "model.image_size=32", "train.batch_size=8")
    ended = store.run(*small, "data=imagenet", f"data.root={broken}")
    assert ended.returncode == 1 and "Traceback" not in ended.stderr
    assert f"{victim} cannot be decoded" in ended.stderr
    (run,) = store.runs()
    assert run.info.status == "FAILED"


@pytest.mark.parametrize(
    ("overrides", "phrase"),
    [
        (("model.classes=9",), "model.classes=9 is fewer than the 10 classes of data=imagenet"),
        (("train.batch_size=300",), "more than the 200 training samples"),
        (("data.limit_eval=201",), "data.limit_eval=201 does not fit 200 samples"),
    ],
)
def test_what_does_not_fit_the_folder_is_one_sentence(
    store: Store, tree: Path, overrides: tuple[str, ...], phrase: str
) -> None:
    ended = store.run(*RESNET18, "data=imagenet", f"data.root={tree}", *overrides)
    assert ended.returncode == 1 and phrase in ended.stderr and len(ended.stderr.splitlines()) == 1
    assert not store.runs()
