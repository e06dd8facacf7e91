"""Which sweep a command goes on with, and that nobody else is at work on it."""

import re
import shlex
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.conf import ConfigSourceInfo
from omegaconf import DictConfig, open_dict, read_write

from msaccel.config import compose
from msaccel.errors import UserError
from msaccel.files import CONF
from msaccel.launch.job import Result, Task
from msaccel.launch.job_folder import JobFolder
from msaccel.sweeps import presets, search
from msaccel.sweeps.callback import begin, needs_one_server
from msaccel.sweeps.checked_jobs import checked_jobs
from msaccel.sweeps.folder import FILE, SweepCommand, SweepFolder, newest

HOLDER = """
import sys, pathlib
from msaccel.launch.job_folder import JobFolder
lock = JobFolder(pathlib.Path(sys.argv[1])).lock(sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""


def asked(jobs: Path, *overrides: str, name: str = "now") -> DictConfig:
    """A sweep's configuration as Hydra composes it, with these overrides."""
    compose.register()
    presets.register()
    hydra = [text for text in overrides if text.startswith("hydra")]
    task = [text for text in overrides if not text.startswith("hydra")]
    single = [text for text in task if "," not in text]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = hydra_compose("config", [f"hydra.sweep.dir={jobs}/{name}", *hydra, *single], return_hydra_config=True)
    with read_write(config), open_dict(config):
        config.hydra.overrides.task = task
    return config


def begun(config: DictConfig) -> None:
    """Begins a sweep; its lock goes with the folder's object, as at the end of its process."""
    assert begin(config, [])


def commanded(*overrides: str) -> SweepCommand:
    return SweepCommand.of(asked(Path("/jobs"), *overrides))


def test_what_only_server_0_knows_is_refused_on_several() -> None:
    servers = ("device=cpu2x2", "device.server_rank=1", "device.master=localhost:8118")
    (resumed,) = needs_one_server(asked(Path("/jobs"), *servers, "sweep.resume=true", "seed=0,1"))
    assert resumed.startswith("sweep.resume=true cannot be used with device.server_rank=1, since only server 0 knows")
    (searched,) = needs_one_server(asked(Path("/jobs"), *servers, "hydra/sweeper=optuna"))
    assert searched.startswith("hydra/sweeper=optuna cannot be used with device.server_rank=1")
    assert not [*needs_one_server(asked(Path("/jobs"), *servers))]
    assert not [*needs_one_server(asked(Path("/jobs"), "sweep.resume=true", "hydra/sweeper=optuna"))]


@pytest.mark.parametrize("holds", ["a job", "a job that has a run", "a start"])
def test_a_sweep_takes_no_folder_of_a_single_job(holds: str, tmp_path: Path) -> None:
    """At its end it would remove the job's checkpoints."""
    folder = JobFolder(tmp_path / "now")
    folder.path.mkdir()
    lock = folder.lock("launcher") if holds == "a start" else None
    if not lock:
        folder.assign(Task("none-cpu-s0"))
    if holds == "a job that has a run":
        folder.write("run.json", {"run_id": "abc", "tracking_uri": "sqlite:///x"})
    jobs, (said,) = checked_jobs(asked(tmp_path, "seed=0,1"))
    assert not jobs and said.startswith(f"hydra.sweep.dir={folder.path} holds ")
    assert ("resume=abc" in said) == (holds == "a job that has a run")


def test_the_same_command_whatever_says_how_it_is_started() -> None:
    first = commanded("accel=none,clip", "seed=0,1")
    assert first == commanded(
        "accel=none,clip", "sweep.resume=true", "seed=0,1", "sweep.retries=2", "checkpoint.every_updates=9",
        "hydra/launcher=joblib", "hydra.launcher.n_jobs=3",
    )  # fmt: skip
    assert first.overrides == ["accel=none,clip", "seed=0,1"]


@pytest.mark.parametrize(
    "other",
    [
        ("accel=none,clip", "seed=0,1", "train.epochs=2"),
        ("seed=0,1", "accel=none,clip"),
        ("accel=none,clip",),
        ("accel=none,clip", "seed=0,1", "tracking.uri=sqlite:////elsewhere.db"),
        ("accel=none,clip", "seed=0,1", "hydra.sweeper.max_batch_size=2"),
    ],
)
def test_another_command(other: tuple[str, ...]) -> None:
    assert commanded("accel=none,clip", "seed=0,1") != commanded(*other)


def test_a_password_is_not_kept() -> None:
    assert "secret" not in str(commanded("seed=0,1", "tracking.uri=http://me:secret@host"))


def test_the_newest_of_the_same_command_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, seeds in (("one", "0,1"), ("two", "0,1"), ("three", "0,1,2")):
        begun(asked(tmp_path, f"seed={seeds}", name=name))
    config = asked(tmp_path, "seed=0,1", "sweep.resume=true")
    assert begin(config, [])
    assert config.hydra.sweep.dir == f"{tmp_path}/two"
    assert config.hydra.overrides.hydra[-1] == f"hydra.sweep.dir='{tmp_path}/two'"
    assert f"sweep {SweepFolder(tmp_path / 'two').sweep_id} goes on: 0 of the 0 jobs" in capsys.readouterr().out


def test_without_one_a_sweep_begins_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert begin(asked(tmp_path, "seed=0,1", "sweep.resume=true"), [])
    sweep = SweepFolder(tmp_path / "now")
    said = f"sweep {sweep.sweep_id} begins, since no sweep of this command was begun before"
    assert said in capsys.readouterr().out and sweep.is_unfinished()


@pytest.mark.parametrize(
    ("name", "pattern"), [("now", r"now_[\d_-]{26}"), ("2026-11-29_10-20-21-372441", "2026-11-29_10-20-21-372441")]
)
def test_its_id_is_printed_when_it_begins(
    name: str, pattern: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is the folder's name, with the time if that is not in it: another sweep may have had a folder of this name."""
    begin(asked(tmp_path, "seed=0,1", name=name), [])
    sweep = SweepFolder(tmp_path / name)
    assert capsys.readouterr().out == f"sweep {sweep.sweep_id} begins\n"
    assert re.fullmatch(pattern, sweep.sweep_id)


def test_a_sweep_that_an_earlier_version_began_keeps_its_id(tmp_path: Path) -> None:
    begun(asked(tmp_path, "seed=0,1"))
    sweep = SweepFolder(tmp_path / "now")
    record = sweep.files.read(FILE)
    assert record and record.pop("sweep_id") != "now"
    sweep.files.write(FILE, record)
    assert sweep.sweep_id == "now"


def test_the_command_of_an_earlier_sweep_names_its_folder(tmp_path: Path) -> None:
    """The newest sweep of a command goes on with the command alone; an earlier one would never."""
    for name in ("one", "two"):
        begun(asked(tmp_path, "seed=0,1", name=name))
        SweepFolder(tmp_path / name).files.write(
            FILE, {**asdict(SweepFolder(tmp_path / name).record()), "typed": ["seed=0,1"]}
        )
    (tmp_path / "a link").symlink_to(tmp_path / "two")  # found before "two" or after it, as the file system has it
    (tmp_path / "zz link").symlink_to(tmp_path / "two")
    one, two = (shlex.split(SweepFolder(tmp_path / name).resume_command()) for name in ("one", "two"))
    assert two == ["python", "run.py", "-m", "seed=0,1", "sweep.resume=true"]
    assert one == [*two[:-1], f"hydra.sweep.dir='{tmp_path}/one'", two[-1]]
    config = asked(tmp_path, "seed=0,1", "sweep.resume=true", name="one")
    assert begin(config, []) and config.hydra.sweep.dir == f"{tmp_path}/one"


def test_a_finished_sweep_says_how_to_compare_it_in_its_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = "tracking.uri=sqlite:////elsewhere.db"
    for words in (("seed=0,1",), ("seed=0,1", store)):
        begin(asked(tmp_path, *words, name=str(len(words))), []).finish([])
        assert begin(asked(tmp_path, *words, "sweep.resume=true"), []) is None
    _, first, _, second = capsys.readouterr().out.splitlines()
    one, two = (SweepFolder(tmp_path / name).sweep_id for name in "12")
    assert first.endswith(f"python -m msaccel compare --sweep {one} compares it")
    assert second.endswith(f"compare --sweep {two} --tracking-uri sqlite:////elsewhere.db compares it")


def test_a_folder_that_holds_a_sweep_takes_no_other(tmp_path: Path) -> None:
    begun(asked(tmp_path, "seed=0,1"))
    for overrides in (("seed=0,1",), ("seed=0,1,2", "sweep.resume=true")):
        with pytest.raises(UserError, match=r"hydra\.sweep\.dir=.* holds a sweep already; "):
            begin(asked(tmp_path, *overrides), [])
    assert begin(asked(tmp_path, "seed=0,1", "sweep.resume=true"), [])


def held_elsewhere(folder: Path, name: str) -> subprocess.Popen[str]:
    """Another process that holds a lock of the folder until its input is closed."""
    pipe = subprocess.PIPE
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder), name], stdin=pipe, stdout=pipe, text=True)
    assert holder.stdout and holder.stdout.readline() == "held\n"
    return holder


def test_a_sweep_that_still_runs_is_refused(tmp_path: Path) -> None:
    begun(asked(tmp_path, "seed=0,1", name="one"))
    with held_elsewhere(tmp_path / "one", "sweep"), pytest.raises(UserError, match="still runs, in another process"):
        begin(asked(tmp_path, "seed=0,1", "sweep.resume=true"), [])
    assert begin(asked(tmp_path, "seed=0,1", "sweep.resume=true"), [])


def test_the_command_that_resumes_names_the_users_own_files(tmp_path: Path) -> None:
    config = asked(tmp_path, "seed=0,1", name="one")
    with read_write(config), open_dict(config):
        config.hydra.runtime.config_sources = [ConfigSourceInfo("/mine", "file", "command-line")]
        config.hydra.job.config_name = "mine"
    begun(config)
    words = shlex.split(SweepFolder(tmp_path / "one").resume_command())
    assert words[:5] == ["python", "run.py", "-m", "--config-dir=/mine", "--config-name=mine"]
    begun(asked(tmp_path, "seed=0,1,2", name="two"))
    assert "--config" not in SweepFolder(tmp_path / "two").resume_command()


def test_a_finished_sweep_leaves_one_file_and_is_never_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun(asked(tmp_path, "seed=0,1", name="one"))
    sweep = SweepFolder(tmp_path / "one")
    for number in (10, 9):
        (sweep.path / str(number)).mkdir()
        JobFolder(sweep.path / str(number)).finish(Result(f"job {number}", "FINISHED", f"id {number}"))
    assert [result.name for result in sweep.results()] == ["job 9", "job 10"]
    sweep.finish(result.run_id for result in sweep.results())
    assert [path.name for path in sweep.path.iterdir()] == ["sweep.json"]
    record = sweep.record()
    assert record and record.finished == ["id 9", "id 10"] and not sweep.is_unfinished()
    assert not begin(asked(tmp_path, "seed=0,1", "sweep.resume=true"), [])
    said = f"sweep {sweep.sweep_id} has finished; python -m msaccel compare --sweep {sweep.sweep_id} compares it"
    assert said in capsys.readouterr().out


def test_defaults_that_have_changed_since_are_refused(tmp_path: Path, composed) -> None:
    begun(asked(tmp_path, "seed=0,1", name="one"))
    folder = JobFolder(tmp_path / "one" / "0")
    folder.path.mkdir()
    compose.save(composed("optimizer.lr=0.5"), folder.config)
    folder.assign(Task("none-cpu-s0"))
    with pytest.raises(UserError, match=r"optimizer\.lr was 0\.5 when the sweep began and would be 0\.01 now"):
        begin(asked(tmp_path, "seed=0,1", "sweep.resume=true"), [composed()])


def test_ids_of_an_earlier_start_are_not_waited_for(tmp_path: Path) -> None:
    begun(asked(tmp_path, "seed=0,1", name="one"))
    (tmp_path / "one" / ".submitit" / "123").mkdir(parents=True)
    assert begin(asked(tmp_path, "seed=0,1", "sweep.resume=true"), [])
    assert not (tmp_path / "one" / ".submitit").exists()


def test_a_file_of_another_kind_is_no_sweep(tmp_path: Path) -> None:
    for number, text in enumerate(("", "[]", "{}", '{"command": 3}', '{"command": {}, "started": "x"}')):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "sweep.json").write_text(text)
    assert newest(tmp_path, commanded("seed=0,1")) is None


def test_a_search_is_resumed_only_if_it_would_choose_the_same_again() -> None:
    common = ("hydra/sweeper=optuna", "data.val_fraction=0.1", "sweep.resume=true")
    assert search.refusals(asked(Path("/jobs"), *common)) == []
    (no_seed,) = search.refusals(asked(Path("/jobs"), *common, "hydra.sweeper.sampler.seed=null"))
    assert "write hydra.sweeper.sampler.seed= with a number" in no_seed
    (named,) = search.refusals(asked(Path("/jobs"), *common, "hydra.sweeper.study_name=mine"))
    assert named.startswith("hydra.sweeper.study_name=mine keeps the trials itself")


def test_a_lock_is_seen_without_taking_it_and_waited_for(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    assert not folder.is_held("rank-0") and not list(tmp_path.iterdir())
    with held_elsewhere(tmp_path, "rank-0") as holder:
        assert folder.ranks_here() == "rank 0"
        assert holder.stdin
        holder.stdin.close()
        folder.wait_for_ranks()
    assert folder.ranks_here() == ""


def test_a_sweep_whose_file_cannot_be_read_is_not_taken_for_a_finished_one(tmp_path: Path) -> None:
    """Its jobs would remove their checkpoints, as those of a finished sweep do."""
    begun(asked(tmp_path, "seed=0,1", name="one"))
    (tmp_path / "one" / FILE).write_text("")
    assert SweepFolder(tmp_path / "one").is_unfinished()
    with pytest.raises(
        UserError, match=r"sweep\.json cannot be read; put it back, or begin the sweep in another folder\.$"
    ):
        SweepFolder(tmp_path / "one").sweep_id  # noqa: B018
    (tmp_path / "one" / FILE).unlink()
    assert not SweepFolder(tmp_path / "one").is_unfinished()
