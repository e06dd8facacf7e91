"""Which run is resumed, with which settings, and the sentence for each that cannot be."""

from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import BaseFileLock

from msaccel.cli import run as cli
from msaccel.compare import runs as collect
from msaccel.config import compose
from msaccel.config.run_name import run_name
from msaccel.errors import UserError
from msaccel.launch import launcher, resume
from msaccel.launch.job import Task
from msaccel.launch.job_folder import JobFolder
from msaccel.launch.resume_changes import apply_overrides
from msaccel.schema import Config
from msaccel.sweeps.session import Session
from msaccel.tracking.mlflow_run import Run
from msaccel.tracking.start import start
from tests.running import SMALL, Store

SAVED = (
    "model=mlp",
    "accel=accum",
    "schedule=step",
    "schedule.unit=epochs",
    "schedule.milestones=[2]",
    "train.epochs=3",
)

JOB = Task("accum-cpu-s0")


def differences(composed: Callable, saved: tuple[str, ...], *typed: str) -> tuple[Config, dict[str, str], list[str]]:
    return apply_overrides(composed(*saved), composed(*typed), list(typed))


def test_what_is_typed_again_changes_nothing(composed: Callable) -> None:
    wanted, recorded, refusals = differences(composed, SAVED, *SAVED)
    assert (wanted, recorded, refusals) == (composed(*SAVED), {}, [])


def test_what_may_change_is_changed_and_recorded(composed: Callable) -> None:
    typed = (
        "train.epochs=5",
        "tracking.every=7",
        "checkpoint.keep=3",
        "device.timeout_s=9",
    )
    wanted, recorded, refusals = differences(composed, SAVED, *typed)
    assert not refusals
    assert wanted == composed(*SAVED, *typed)
    assert recorded == {"train.epochs": "5", "tracking.every": "7", "checkpoint.keep": "3"}


OTHER_JOBS = {
    "optimizer.lr=0.1": "optimizer.lr: 0.01 → 0.1 would make it another job; leave optimizer.lr out, ",
    "seed=1": "seed: 0 → 1 would make it another job; ",
    "model=lenet": "model: mlp → lenet would make it another job; ",
    "accel=[accum,clip]": "accel: accum → accum+clip would make it another job; ",
    "optimizer=adam": "optimizer: momentum → adam would make it another job; ",
    "device=cpu4": "device: cpu → cpu4 would make it another job; ",
    "data.limit_train=100": "data.limit_train: null → 100 would make it another job; ",
    "train.target_accuracy=0.9": "train.target_accuracy: null → 0.9 would make it another job; ",
    "train.stop_at_target=true": "train.stop_at_target: False → True would make it another job; ",
    "experiment=grad_accum_mlp": "experiment= cannot be combined with resume=, ",
}


@pytest.mark.parametrize(("typed", "said"), OTHER_JOBS.items(), ids=OTHER_JOBS)
def test_another_job_is_refused_with_the_difference(composed: Callable, typed: str, said: str) -> None:
    _, _, refusals = differences(composed, SAVED, typed)
    assert len(refusals) == 1 and refusals[0].startswith(said) and "\n" not in refusals[0]


def test_a_key_that_the_job_lacks_is_refused(composed: Callable) -> None:
    """Its data set is the default of the command line, not that of the run."""
    _, recorded, (refusal,) = differences(composed, ("data=synthetic",), "data.root=/data")
    assert not recorded and refusal.startswith("data.root: not set → /data would make it another job")


BUDGETS = {
    "decay": (("schedule=cosine",), "other rates to updates that are made already (schedule=cosine)"),
    "fractions": (("schedule=step", "schedule.milestones=[0.5]", "schedule.unit=fraction"), "other rates"),
    "warm-up in fractions": (("schedule=constant", "schedule.warmup=0.1", "schedule.unit=fraction"), "other rates"),
    "stages": (("accel=dimreduce", "train.epochs=6"), "would have begun stage 2 at another update"),
    "average": (("accel=average", "accel.average.start=0.5"), "would have averaged the weights of other updates"),
    "frozen layers": (("accel=freeze",), "may have frozen other layers"),
    "growing windows": (("accel=accum", "accel.accum.grow_at=[0.5]"), "would have made windows grow after other"),
    "sizes of images": (("accel=resize", "model=resnet50", "data=synthetic"), "may have given other sizes to images"),
    "local steps": (("accel=localsgd", "device=cpu4", "accel.localsgd.start=0.5"), "steps of single ranks"),
}
FREE_BUDGETS = {
    "constant rate": ("schedule=constant",),
    "average of all updates": ("accel=average", "accel.average.start=0", "accel.average.every=1"),
    "layers drawn for each update": ("accel=freeze", "accel.freeze.form=boost"),
    "local steps from the first update on": ("accel=localsgd", "device=cpu4", "accel.localsgd.start=0"),
}


@pytest.mark.parametrize(("saved", "said"), BUDGETS.values(), ids=BUDGETS)
def test_a_budget_that_past_updates_depended_on_is_refused(
    composed: Callable, saved: tuple[str, ...], said: str
) -> None:
    _, _, (refusal,) = differences(composed, saved, "train.epochs=9")
    assert said in refusal


@pytest.mark.parametrize("saved", FREE_BUDGETS.values(), ids=FREE_BUDGETS)
def test_a_budget_that_past_updates_did_not_depend_on_may_change(composed: Callable, saved: tuple[str, ...]) -> None:
    _, recorded, refusals = differences(composed, saved, "train.epochs=9")
    assert not refusals and recorded == {"train.epochs": "9"}


@pytest.fixture
def begin(store: Store, composed: Callable) -> Callable[..., tuple[Run, JobFolder]]:
    """Begins a job as its worker would, and leaves it RUNNING."""

    def begun(name: str = "job", task: Task = JOB, *more: str) -> tuple[Run, JobFolder]:
        config = composed(*SAVED, f"tracking.uri={store.uri}", f"tracking.artifacts={store.folder}/artifacts", *more)
        folder = JobFolder(store.folder / name)
        folder.path.mkdir(exist_ok=True)
        compose.save(config, folder.config)
        folder.assign(task)
        return start(config, run_name(config), "", folder.path, task.resume), folder

    return begun


@pytest.fixture
def find(store: Store, composed: Callable) -> Callable[..., resume.ResumableJob]:
    def found(*typed: str) -> resume.ResumableJob:
        typed = (f"tracking.uri={store.uri}", *typed)
        return resume.find(composed(*typed), list(typed), JobFolder(store.folder))

    return found


@pytest.mark.slow
def test_a_run_is_found_with_its_settings_and_told_what_changed(begin: Callable, find: Callable) -> None:
    run, folder = begin(task=Task("accum-cpu-s0", ["accel=accum"], "a sweep", changed={"train.epochs": "4"}))
    found = find(f"resume={run.run_id}", "tracking.every=7")
    assert found.folder == folder and found.config.model.name == "mlp" and found.config.tracking.every == 7
    assert found.config.resume is None
    assert found.task == Task(
        "accum-cpu-s0", ["accel=accum", "tracking.every=7"], "a sweep", False, run.run_id,
        {"train.epochs": "4", "tracking.every": "7"},
    )  # fmt: skip


@pytest.mark.slow
def test_name_tags_and_note_may_change(begin: Callable, find: Callable, store: Store) -> None:
    run, _ = begin()
    typed = ["tracking.name=mine", "+tracking.tags.purpose='a, b'", "tracking.note='Better, or not?'"]
    found = find(f"resume={run.run_id}", *typed)
    tracking = found.config.tracking
    wanted = ("mine", {"purpose": "a, b"}, "Better, or not?")
    assert (tracking.name, tracking.tags, tracking.note) == wanted
    repeated = compose.from_overrides(found.task.overrides).tracking
    assert (repeated.name, repeated.tags, repeated.note) == wanted, "the command in the run's description repeats it"
    start(found.config, found.task.run_name, "", found.folder.path, run.run_id)
    data = store.client.get_run(run.run_id)
    assert data.info.run_name == found.task.run_name == "mine" and data.data.tags["purpose"] == "a, b"


@pytest.mark.slow
def test_latest_is_the_newest_that_has_not_finished(begin: Callable, find: Callable, store: Store) -> None:
    runs = [begin(name)[0] for name in ("first", "killed", "finished")]
    store.client.set_terminated(runs[1].run_id, "KILLED")
    store.client.set_terminated(runs[2].run_id, "FINISHED")
    assert find("resume=latest", "model=mlp").task.resume == runs[1].run_id
    with pytest.raises(UserError, match="no unfinished run in the experiment lenet-mnist"):
        find("resume=latest")


@pytest.mark.slow
def test_runs_that_cannot_go_on(begin: Callable, find: Callable, store: Store) -> None:
    run, folder = begin()
    for status, said in (
        ("FINISHED", "has finished, so there is nothing to resume"),
        ("KILLED", "kept its checkpoints in"),
    ):
        store.client.set_terminated(run.run_id, status)
        folder.config.unlink(missing_ok=True)
        with pytest.raises(UserError, match=said):
            find(f"resume={run.run_id}")
    store.client.delete_run(run.run_id)
    with pytest.raises(UserError, match="was deleted in MLflow"):
        find(f"resume={run.run_id}")
    with pytest.raises(UserError, match="is not a run of this store"):
        find(f"resume={'0' * 32}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("written", "edited"),
    [
        ("seed: 0", "seed: 1"),
        ("lr: 0.01", "lr: 0.5"),
        ("steps: 4", "steps: 8"),
        ("limit_train: 100", "limit_train: null"),
    ],
)
def test_settings_that_are_not_those_of_the_run_are_refused(
    begin: Callable, find: Callable, written: str, edited: str
) -> None:
    """Without a checkpoint to compare it with, an edited file would train another job under the run's parameters."""
    run, folder = begin("job", JOB, "data.limit_train=100")
    assert written in folder.config.read_text()
    folder.config.write_text(folder.config.read_text().replace(written, edited))
    with pytest.raises(UserError, match=r"was \S+ when run .* began and is \S+ in the job's config.yaml"):
        find(f"resume={run.run_id}")


@pytest.mark.slow
def test_a_run_that_goes_on_logs_nothing_twice(begin: Callable, store: Store) -> None:
    run, _ = begin()
    run.metrics(3, {"train/loss": 1.0, "lr": 0.1})
    run.flush()
    run.metrics(6, {"train/loss": 0.5})
    unflushed = run.unflushed()
    store.client.set_terminated(run.run_id, "KILLED")
    again, _ = begin("job", Task("accum-cpu-s0", resume=run.run_id))
    assert store.client.get_run(run.run_id).info.status == "RUNNING"
    again.resumed(4, {"train.epochs": "5"})
    again.log_again(unflushed)
    again.metrics(3, {"train/loss": 1.0, "eval/loss": 2.0})
    again.metrics(9, {"train/loss": 0.25})
    again.flush()
    again.resumed(9, {"tracking.every": "2"})
    (found,) = store.runs()
    assert store.history(found) == {
        "eval/loss": [(3, 2.0)], "lr": [(3, 0.1)], "train/loss": [(3, 1.0), (6, 0.5), (9, 0.25)]
    }  # fmt: skip
    tags = found.data.tags
    assert (tags["resumes"], tags["resumed_from"]) == ("2", "4 9")
    assert found.data.params["train.epochs"] == "3", "MLflow lets no parameter change"
    assert collect.record(found).params["train.epochs"] == "5"


@pytest.mark.slow
def test_a_budget_that_ends_before_what_is_logged_is_refused(begin: Callable, store: Store) -> None:
    """MLflow gives the value of the highest step for that of a run; the last checkpoint is often older than that."""
    run, folder = begin("job", JOB, *SMALL, "train.epochs=3")
    folder.write("run.json", {"run_id": run.run_id, "tracking_uri": store.uri})
    run.metrics(9, {"eval/accuracy": 0.5})
    run.flush()
    store.client.set_terminated(run.run_id, "KILLED")
    ended = store.run(f"resume={run.run_id}", "train.max_updates=8")
    assert ended.returncode == 1
    assert "ends after 8 updates and has logged 9; raise train.epochs or train.max_updates" in ended.stderr
    (found,) = store.runs()
    assert found.info.status != "FINISHED" and store.history(found) == {"eval/accuracy": [(9, 0.5)]}
    assert store.run(f"resume={run.run_id}", "train.max_updates=9").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("latest", [False, True])
def test_a_job_that_ends_while_its_lock_is_waited_for_is_left_alone(
    begin: Callable, store: Store, composed: Callable, monkeypatch: pytest.MonkeyPatch, latest: bool
) -> None:
    begin("other")  # the latest, once the second one has finished
    run, folder = begin()
    free = JobFolder.lock

    def ends(self: JobFolder, name: str) -> BaseFileLock:
        store.client.set_terminated(run.run_id, "FINISHED")
        self.clear()
        return free(self, name)

    monkeypatch.setattr(JobFolder, "lock", ends)
    monkeypatch.setattr(launcher, "run", lambda *job: pytest.fail("it is trained once more"))
    which = ["resume=latest", "model=mlp"] if latest else [f"resume={run.run_id}"]
    typed, gathered = [*which, f"tracking.uri={store.uri}"], Session()
    cli.resume(composed(*typed), typed, JobFolder(store.folder / "own"), gathered)
    assert "has finished, so there is nothing to resume" in gathered.refusals[0]
    assert store.client.get_run(run.run_id).info.status == "FINISHED" and not folder.path.exists()


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path)
    launcher, rank = folder.lock("launcher"), folder.lock("rank-1")
    assert folder.ranks_here() == "rank 1"
    with pytest.raises(UserError, match="is in use"):
        folder.lock("launcher")
    rank.release()
    launcher.release()
    assert folder.ranks_here() == ""
    folder.lock("launcher").release()
