"""Resume checkpoints on disk: whole or not there, the last ones kept, and nothing believed that is not right."""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from msaccel import schema
from msaccel.checkpoint import resume_file
from msaccel.distributed.communicator import SINGLE_PROCESS
from msaccel.errors import CheckpointError
from msaccel.training.resume_checkpoints import ResumeCheckpoints

ARRAYS = {
    "update/conv1.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "update/global_step": np.array([7], np.int32),
    "update/guard.scale": np.array(1024.0, np.float32),
    "meter/sums": np.array([np.nan, -0.0, 1e-300]),
    "meter/refused": np.zeros((0, 2), np.int64),
    "half": np.array([65504, -1], np.float16),
    "transposed": np.arange(6, dtype=np.float64).reshape(2, 3).T,
}
FACTS = {"counters": {"best": float("-inf"), "rate": 0.1}, "identity": {}}


def write(folder: Path, update: int, keep: int = 2) -> Path:
    return resume_file.write(folder, update, ARRAYS, {**FACTS, "update": update}, keep)


def updates(folder: Path) -> list[int]:
    return [int(path.name[7:17]) for path in resume_file.newest_first(folder)]


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    saved = resume_file.read(write(tmp_path, 100))
    assert saved.update == 100 and saved.facts == {**FACTS, "update": 100}
    assert saved.arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        found = saved.arrays[name]
        assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes()), name


def test_the_name_holds_the_digest_and_other_readers_understand_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, 3)
    assert path.name == f"update-0000000003.{hashlib.sha256(path.read_bytes()).hexdigest()}.safetensors"
    np.testing.assert_array_equal(load_file(path)["transposed"], ARRAYS["transposed"])


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    for update in (9, 10, 100, 101):
        write(tmp_path, update, keep=3)
    assert updates(tmp_path) == [101, 100, 10]
    assert len(os.listdir(tmp_path)) == 3


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_write_that_fails_leaves_those_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    write(tmp_path, 1)
    before = os.listdir(tmp_path)

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(resume_file.os, call, fail)
        with pytest.raises(OSError, match="No space left"):
            write(tmp_path, 2)
    assert os.listdir(tmp_path) == before


def test_the_bytes_are_on_the_disk_before_the_name_is_and_the_name_before_others_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 1, keep=1)
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(resume_file.os, name, lambda *a, name=name, real=real: (calls.append(name), real(*a)))
    real_unlink = Path.unlink
    monkeypatch.setattr(
        Path,
        "unlink",
        lambda path, **how: (path.suffix != ".part" and calls.append("unlink"), real_unlink(path, **how)),
    )
    write(tmp_path, 2, keep=1)
    assert calls == ["fsync", "replace", "fsync", "unlink"]


def cut(share: float):
    return lambda path: path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


def flip(place: int):
    def flipped(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[place] ^= 1
        path.write_bytes(content)

    return flipped


def replaced(content: bytes):
    """Another content, with its own digest in the name: as somebody might who wants it believed."""

    def put(path: Path) -> None:
        path.unlink()
        path.with_name(f"{path.name[:17]}.{hashlib.sha256(content).hexdigest()}.safetensors").write_bytes(content)

    return put


def announcing(shape: list[int], end: int, kind: str = "F32") -> bytes:
    """A safetensors file of 8 bytes of data that announces something else."""
    header = {"__metadata__": {resume_file.MARK: "{}"}, "a": {"dtype": kind, "shape": shape, "data_offsets": [0, end]}}
    encoded = json.dumps(header).encode()
    return len(encoded).to_bytes(8, "little") + encoded + bytes(8)


DAMAGE = {
    "empty": cut(0),
    "torn in the header": cut(0.1),
    "torn in the data": cut(0.98),
    "a bit of the header": flip(20),
    "a bit of the data": flip(-1),
    "missing": lambda path: (path.unlink(), path.mkdir()),
    "noise": replaced(np.random.default_rng(0).bytes(500)),
    "a header of 2^60 bytes": replaced((2**60).to_bytes(8, "little") + bytes(8)),
    "a shape beyond the file": replaced(announcing([2**40], 2**42)),
    "a shape that overflows": replaced(announcing([2**33, 2**33], 8)),
    "a negative shape": replaced(announcing([-2, -1], 8)),
    "an unknown type": replaced(announcing([2], 8, "pickle")),
    "no mark": replaced(save({"a": np.zeros(2)})),
    "a mark that is no object": replaced(save({"a": np.zeros(2)}, {resume_file.MARK: "[1]"})),
    "a mark that is no JSON": replaced(save({"a": np.zeros(2)}, {resume_file.MARK: "cos\nsystem\n(S'true'\ntR."})),
    "a mark as deep as memory": replaced(save({"a": np.zeros(2)}, {resume_file.MARK: "[" * 100_000})),
}


def keeper(folder: Path, **identity: str) -> ResumeCheckpoints:
    return ResumeCheckpoints(schema.CheckpointSettings(), folder, SINGLE_PROCESS, identity)


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_newest_falls_back_to_the_one_before(tmp_path: Path, capsys, damage) -> None:
    kept = keeper(tmp_path)
    for update in (10, 20):
        write(kept.files, update)
    damage(resume_file.newest_first(kept.files)[0])
    saved = kept.read()
    assert saved is not None and saved.update == 10
    (warning,) = capsys.readouterr().err.splitlines()
    assert "update-0000000020" in warning and warning.endswith("The one before it is used.")
    assert updates(kept.files) == [10], "the damaged one no longer counts among those that are kept"


def test_without_a_whole_one_there_is_none(tmp_path: Path) -> None:
    kept = keeper(tmp_path)
    assert kept.read() is None
    cut(0.5)(write(kept.files, 10))
    (kept.files / "update-1.safetensors").write_text("no name of ours")
    assert kept.read() is None


def test_other_data_or_kernels_are_refused(tmp_path: Path) -> None:
    keeper(tmp_path, data="abc", kernels="onednn").write(5, ARRAYS, {})
    assert keeper(tmp_path, data="abc", kernels="onednn").read() is not None
    with pytest.raises(CheckpointError, match="had kernels onednn and would have unfold here"):
        keeper(tmp_path, data="abc", kernels="unfold").read()


def test_a_full_disk_does_not_end_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    kept = keeper(tmp_path)
    kept.write(5, ARRAYS, {})

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(resume_file.os, "fsync", fail)
        kept.write(10, ARRAYS, {})
    assert capsys.readouterr().err == (
        "the resume checkpoint of update 10 could not be written (No space left on device); training goes on, and the "
        "one before it stays.\n"
    )
    saved = kept.read()
    assert saved is not None and saved.update == 5


def test_when_one_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from msaccel.training import resume_checkpoints as module

    seconds = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: seconds[0])
    kept = ResumeCheckpoints(
        schema.CheckpointSettings(every_updates=4, every_minutes=1), tmp_path, SINGLE_PROCESS, {}, _written=0.0
    )
    kept.watch(0)
    assert [update for update in range(1, 13) if kept.due(update)] == [4, 8, 12]
    seconds[0] = 60.0
    assert kept.due(13)
    kept.write(13, ARRAYS, {})
    seconds[0] = 119.0
    assert not kept.due(14)
    seconds[0] = 120.0
    assert kept.due(15)


def test_a_checkpoint_of_another_run_or_of_other_settings_is_refused(tmp_path: Path) -> None:
    def checkpoints(run_id: str = "a", **settings: str) -> ResumeCheckpoints:
        settings_now = {"seed": "0", "optimizer.lr": "0.1"} | {key.replace("__", "."): v for key, v in settings.items()}
        files = schema.CheckpointSettings(), tmp_path, SINGLE_PROCESS, {"data": "d", "kernels": "new"}
        return ResumeCheckpoints(*files, run_id=run_id, job_settings=settings_now, _written=0.0)

    checkpoints().write(5, ARRAYS, {})
    assert checkpoints().read() is not None
    assert checkpoints(train__new_key="1").read() is not None, "a key that a later version has"
    for other, said in ((checkpoints("b"), "of run a"), (checkpoints(optimizer__lr="0.5"), "optimizer.lr was 0.1")):
        with pytest.raises(CheckpointError, match=said):
            other.read()


def test_other_kernels_are_refused(tmp_path: Path) -> None:
    then = ResumeCheckpoints(schema.CheckpointSettings(), tmp_path, SINGLE_PROCESS, {"kernels": "old"}, _written=0.0)
    then.write(5, ARRAYS, {})
    now = ResumeCheckpoints(schema.CheckpointSettings(), tmp_path, SINGLE_PROCESS, {"kernels": "new"}, _written=0.0)
    with pytest.raises(CheckpointError, match="the job had kernels old and would have new"):
        now.read()


def test_what_a_killed_job_was_writing_goes_with_the_next_checkpoint(tmp_path: Path) -> None:
    left = tmp_path / f"update-0000000004.{'0' * 64}.safetensors.part"
    left.write_bytes(b"cut off")
    resume_file.write(tmp_path, 5, ARRAYS, {}, keep=2)
    assert not left.exists() and len(list(tmp_path.iterdir())) == 1
