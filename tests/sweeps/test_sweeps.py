"""Jobs of a sweep are independent: of each other's numbers, and of each other's failures."""

import re
import shutil
from pathlib import Path

import psutil
import pytest
from mlflow.entities import Run

from msaccel.accel import methods as all_methods
from msaccel.tracking.status import KIND, SEEDS, SWEEP
from tests.running import SMALL, SMALL_DIFFERS, Store, soak, wait_until

pytestmark = pytest.mark.slow


def test_a_job_of_a_sweep_has_bit_for_bit_the_metrics_it_has_alone(store: Store) -> None:
    ended = store.run("-m", "accel=none,accum,[accum]", "seed=0,1", *SMALL)
    assert ended.returncode == 0, ended.stderr
    swept = store.runs()
    names = [f"{label} {SMALL_DIFFERS} s{seed}" for label in ("baseline", "accum", "accum") for seed in (0, 1)]
    assert [run.info.run_name for run in swept] == names
    assert len({run.data.tags["sweep_id"] for run in swept}) == 1
    assert store.history(swept[2]) == store.history(swept[4]), "accum and [accum] are the same job"
    assert store.history(swept[2])["train/loss"] != store.history(swept[3])["train/loss"], "another seed"
    for accel, seed, in_sweep in (("none", 1, swept[1]), ("accum", 0, swept[2])):
        alone = Store(store.folder / accel)
        alone.folder.mkdir()
        assert alone.run(f"accel={accel}", f"seed={seed}", *SMALL).returncode == 0
        (run,) = alone.runs()
        assert "sweep_id" not in run.data.tags
        assert alone.history(run) == store.history(in_sweep)
        assert weights(alone, run) == weights(store, in_sweep)
    assert "2 further runs repeat the results of others" in ended.stdout
    assert "n = 2 is too small" in ended.stdout


def test_a_new_sweep_in_the_folder_of_an_earlier_one_is_another_sweep(store: Store) -> None:
    """Its report would take the place of the other's, and `compare --sweep` would mix their runs."""
    folder = store.folder / "sweep"
    for rate in (0.01, 0.02):
        ended = store.run("-m", "seed=0,1,2", f"optimizer.lr={rate}", f"hydra.sweep.dir={folder}", *SMALL)
        assert ended.returncode == 0, ended.stderr
        shutil.rmtree(folder)
    ids = {run.data.params["optimizer.lr"]: run.data.tags["sweep_id"] for run in store.runs()}
    assert len({*ids.values()}) == 2 and all(one.startswith("sweep_20") for one in ids.values())
    (experiment,) = {run.info.experiment_id for run in store.runs()}
    above = store.client.search_runs([experiment], f"tags.{KIND} != ''")
    found = {(run.data.tags[KIND], run.data.tags["sweep_id"]) for run in above}
    assert len(above) == 4 and found == {(kind, one) for kind in (SWEEP, SEEDS) for one in ids.values()}


def test_joblib_runs_jobs_side_by_side_with_the_same_numbers(store: Store, trained: Store) -> None:
    ended = store.run("-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "seed=0,1",
                      *SMALL, "accel=accum", "data.val_fraction=0.1", "train.target_accuracy=0.05")  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    runs = {run.data.params["seed"]: run for run in store.runs()}
    assert set(runs) == {"0", "1"}
    assert store.history(runs["0"]) == trained.history(trained.runs()[0])
    rows = [line.split() for line in ended.stdout.splitlines() if line.startswith("  accum")]
    assert len(rows) == 2 and rows[0][:2] == ["accum", "2"]  # the second is of the times to the target
    _, begins, *said, _ = ended.stdout.partition(": mean ±")[0].splitlines()
    assert begins == f"sweep {runs['0'].data.tags['sweep_id']} begins"
    assert len(said) == 2 * 7 and all(re.match(r"\[[12]/2\] accum( s\d:)? ", line) for line in said)


def test_one_failing_job_does_not_take_the_others_along(store: Store) -> None:
    ended = store.run("-m", "optimizer.lr=0.01,1e12,0.02", *SMALL)
    assert ended.returncode == 1
    assert sorted(run.info.status for run in store.runs()) == ["FAILED", "FINISHED", "FINISHED"]
    assert "FAILED: the gradient of update" in ended.stderr.splitlines()[-1]


def test_a_refused_combination_is_reported_and_the_others_run(store: Store) -> None:
    ended = store.run("-m", "accel=accum", "accel.accum.lr_scale=none,linear", "accel.accum.reduction=sum", *SMALL)
    assert ended.returncode == 2
    (run,) = store.runs()
    assert run.info.status == "FINISHED" and run.data.params["accel.accum.lr_scale"] == "none"
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("[2/2] accum s0: REFUSED: accel.accum.lr_scale=linear with accel.accum.reduction=sum")
    assert [folder.name for folder in (store.folder / "jobs").glob("*/*") if folder.is_dir()] == ["0"]


EVERY = ["none", *all_methods()]
# How the refusal of a method begins, with an MLP and with one rank.
REFUSED_WITH_MLP = {
    "lessbn": "accel=lessbn removes norms of residual blocks",
    "resize": "accel=resize trains on images of several sizes",
}
REFUSED_ALONE = {
    "adasum": "accel=adasum needs at least two parts",
    "localsgd": "accel=localsgd needs at least two ranks",
    "powersgd": "accel=powersgd needs at least two ranks",
}
REFUSED = REFUSED_WITH_MLP | REFUSED_ALONE
# The other methods have jobs in the tests of their own.
SOME = [name for name in EVERY if name in ("none", "centralize", "sam") or name in REFUSED]
METHODS = ",".join(name for name in EVERY if name not in REFUSED_WITH_MLP)
SHORT = (
    "data=synthetic", "data.train_size=340", "data.test_size=70",
    "model=mlp", "train.batch_size=4", "train.epochs=6", "tracking.every=20",
)  # fmt: skip
# dimreduce takes 40 snapshots in the second half of its first 4 epochs, which has 44 updates with either.
FOUR_RANKS = ("device=ascend16", "device.ranks_per_server=2", *SHORT)
SIXTEEN_RANKS = ("device=ascend16", *SHORT, "data.train_size=1400")


@pytest.mark.parametrize("methods", [SOME, *soak(EVERY)], ids=["some", "all"])
def test_every_method_runs_or_says_why_not(store: Store, methods: list[str]) -> None:
    ended = store.run("-m", "device=cpu", f"accel={','.join(methods)}", *SHORT, "train.batch_size=16")
    assert ended.returncode == 2
    assert [run.data.tags["accel"] for run in store.runs()] == [name for name in methods if name not in REFUSED]
    assert all(run.info.status == "FINISHED" for run in store.runs())
    expected = [
        f"[{number}/{len(methods)}] {name} s0: REFUSED: {REFUSED[name]}"
        for number, name in enumerate(methods, 1)
        if name in REFUSED
    ]
    refused = ended.stderr.splitlines()[-len(expected) :]
    assert [line[: len(start)] for line, start in zip(refused, expected, strict=True)] == expected


@pytest.mark.parametrize(
    ("methods", "job"),
    [
        ("adasum", FOUR_RANKS),
        pytest.param("localsgd,dimreduce", FOUR_RANKS, marks=pytest.mark.soak),
        pytest.param(METHODS, SIXTEEN_RANKS, marks=pytest.mark.soak),
    ],
    ids=["one", "more", "all"],
)
def test_every_method_has_bit_for_bit_the_metrics_it_has_alone_on_virtual_ranks(
    store: Store, methods: str, job: tuple[str, ...]
) -> None:
    ended = store.run("-m", f"accel={methods}", *job)
    assert ended.returncode == 0, ended.stderr
    swept = {run.data.tags["accel"]: run for run in store.runs()}
    assert list(swept) == methods.split(",")
    for method, run in swept.items():
        assert run.data.tags["simulated"] == "true"
        alone = Store(store.folder / method)
        alone.folder.mkdir()
        assert alone.run(f"accel={method}", *job).returncode == 0
        assert alone.history(alone.runs()[0]) == store.history(run), method
        assert weights(alone, alone.runs()[0]) == weights(store, run), method


def weights(store: Store, run: Run) -> bytes:
    return Path(store.client.download_artifacts(run.info.run_id, "checkpoints/last.safetensors")).read_bytes()


def test_a_killed_job_fails_and_the_next_one_begins(store: Store) -> None:
    """Also where what is killed is the process that forks the jobs."""
    long = ("data=synthetic", "train.epochs=100000", "train.eval_every=1000", "model=mlp", "seed=0,1,2")
    sweep = store.start("-m", *long)
    try:
        for number in range(3):
            wait_until(lambda many=number: len(store.runs()) == many + 1)
            (server,) = psutil.Process(sweep.pid).children()
            (job,) = server.children()
            (job if number == 0 else server).kill()
            wait_until(lambda ended=job: not ended.is_running())
        said = sweep.communicate(timeout=store.timeout)[1]
    finally:
        sweep.kill()
    assert sweep.returncode == 1
    assert [run.info.status for run in store.runs()] == ["FAILED"] * 3
    assert [line for line in said.splitlines() if "FAILED" in line] == [
        f"[{seed + 1}/3] baseline s{seed}: FAILED: the worker was ended by SIGKILL "
        "(the system ends processes so when memory runs out)"
        for seed in range(3)
    ]


def test_jobs_with_other_threads_have_them(store: Store) -> None:
    """OpenMP and OpenBLAS read them while they are loaded."""
    ended = store.run("-m", "device.threads=2,1,2", "accel=dimreduce", "model=mlp", *SHORT)
    assert ended.returncode == 0, ended.stderr
    two, one, again = store.runs()
    assert store.history(two) == store.history(again) and one.data.params["device.threads"] == "1"
