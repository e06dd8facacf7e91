"""Sweeps whose jobs another program starts, submitit or joblib, and one that logs to an MLflow server."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from msaccel.config.compose import register
from msaccel.files import CONF
from msaccel.launch.job_folder import JobFolder
from msaccel.sweeps import presets, submitit
from msaccel.tracking.status import FAILED, KILLED, KIND
from tests import forking
from tests.launch.test_endings import LONG
from tests.running import ROOT, SMALL, Store, wait_until
from tests.tracking.storage.servers import MlflowServer

LOCAL = ("-m", "hydra/launcher=submitit_local")


def sweep(*overrides: str) -> DictConfig:
    """What Hydra composes for a sweep."""
    register()
    presets.register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", overrides=[*overrides, "hydra.sweep.dir=/jobs"], return_hydra_config=True)


def launcher(*overrides: str) -> dict[str, object]:
    """The launcher's resolved keys, composed as for a sweep."""
    found = OmegaConf.to_container(sweep(*overrides).hydra.launcher, resolve=True)
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items()}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("hydra.sweep.subdir=a",), "hydra.sweep.subdir names the folders of jobs"),
        (("hydra.sweep.subdir=../${hydra.job.num}",), "hydra.sweep.subdir names the folders of jobs"),
        (("hydra.sweeper.max_batch_size=0",), "hydra.sweeper.max_batch_size=0 starts no job"),
        (("hydra.sweeper.max_batch_size=-1",), "hydra.sweeper.max_batch_size=-1 starts no job"),
        (("hydra/launcher=joblib", "hydra.launcher.n_jobs=0"), "hydra.launcher.n_jobs=0 starts no job"),
    ],
)
def test_a_sweep_that_would_lose_its_jobs_is_refused(typed: tuple[str, ...], said: str) -> None:
    """With one folder for all, the second job was taken for the first, and the sweep ended with exit code 0."""
    (refusal,) = presets.refusals(sweep(*typed).hydra)
    assert refusal.startswith(said)


@pytest.mark.parametrize("launched", ["basic", "joblib", "submitit_local", "submitit_slurm"])
def test_the_presets_themselves_are_not_refused(launched: str) -> None:
    assert not list(presets.refusals(sweep(f"hydra/launcher={launched}", "hydra.sweeper.max_batch_size=1").hydra))


def test_the_preset_of_slurm_asks_for_what_a_job_of_the_device_needs() -> None:
    found = launcher("hydra/launcher=submitit_slurm", "device=cpu4", "hydra.launcher.partition=long")
    assert found["_target_"].endswith(".SlurmLauncher")  # type: ignore[attr-defined]
    expected = {
        "cpus_per_task": 4, "gpus_per_node": None, "mem_gb": 8, "timeout_min": 240, "signal_delay_s": 120, "nodes": 1,
        "tasks_per_node": 1, "max_num_timeout": 0, "partition": "long", "submitit_folder": "/jobs/.submitit/%j",
    }  # fmt: skip
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("device", "cores", "cards"),
    [
        ("cpu", 2, None),
        ("gpu", 2, 1),
        ("cpu2x2", 4, None),
        ("ascend8", 16, None),
        ("ascend8 device.simulate=always", 2, None),
    ],
)
def test_cores_and_cards_follow_the_device(device: str, cores: int, cards: int | None) -> None:
    found = launcher("hydra/launcher=submitit_slurm", *f"device={device}".split())
    assert (found["cpus_per_task"], found["gpus_per_node"]) == (cores, cards)


def test_the_other_presets() -> None:
    assert launcher("hydra/launcher=joblib")["n_jobs"] == 2
    local = launcher("hydra/launcher=submitit_local", "device=gpu")
    assert (local["gpus_per_node"], local["timeout_min"]) == (1, 240)


MISSING = "import sys; sys.modules['hydra_plugins.hydra_submitit_launcher'] = None"
SENTENCES = {
    "no Slurm here": (("hydra/launcher=submitit_slurm",), "needs Slurm's commands srun and sbatch"),
    "wrong type": ((LOCAL[1], "hydra.launcher.timeout_min=abc"), "hydra.launcher.timeout_min=abc has the wrong type"),
    "unknown key": ((LOCAL[1], "hydra.launcher.timeot_min=3"), "hydra.launcher.timeot_min is not a key"),
    "a folder of other sweeps": (
        (LOCAL[1], "hydra.launcher.submitit_folder=/tmp/slurm/%j"),
        "would be shared with other sweeps",
    ),
    "two nodes": ((LOCAL[1], "hydra.launcher.nodes=2"), "would train a job several times"),
    "no plugin": ((LOCAL[1],), "hydra/launcher=submitit_local needs a package that is missing"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", SENTENCES)
def test_one_sentence_and_nothing_started(store: Store, tmp_path: Path, case: str) -> None:
    overrides, phrase = SENTENCES[case]
    tools = tmp_path / "tools"
    tools.mkdir()
    if case == "no plugin":
        (tools / "sitecustomize.py").write_text(MISSING)
    ended = store.run("-m", *overrides, *SMALL, "seed=0,1", PATH=str(tools), PYTHONPATH=str(tools))
    assert ended.returncode == 2
    assert phrase in ended.stderr
    assert re.fullmatch(r"[^\n]{10,400}\.\n", ended.stderr), "one line, one sentence"
    assert not (store.folder / "mlflow.db").exists() and not (store.folder / "jobs").exists()


@pytest.mark.slow
def test_submitit_trains_the_jobs_and_one_table_is_printed(store: Store, trained: Store) -> None:
    ended = store.run(*LOCAL, "seed=0,1", *SMALL, "accel=accum", "data.val_fraction=0.1", "train.target_accuracy=0.05")
    assert ended.returncode == 0, ended.stderr
    runs = {run.data.params["seed"]: run for run in store.runs()}
    assert set(runs) == {"0", "1"}
    assert len({run.data.tags["sweep_id"] for run in runs.values()}) == 1
    assert store.history(runs["0"]) == trained.history(trained.runs()[0])
    rows = [line.split() for line in ended.stdout.splitlines() if line.startswith("  accum")]
    assert len(rows) == 2 and rows[0][:2] == ["accum", "2"]  # the second is of the times to the target
    (kept,) = store.folder.glob("jobs/*/*")
    assert kept.name == "sweep.json", "all finished: nothing else is kept, nor what submitit wrote"


@pytest.mark.slow
@pytest.mark.soak
def test_a_refused_job_and_a_failing_one_are_reported_beside_the_table_of_the_rest(store: Store) -> None:
    overrides = (
        "accel=accum",
        "accel.accum.lr_scale=none,linear",
        "accel.accum.reduction=sum",
        "optimizer.lr=1e12,0.01",
    )
    ended = store.run(*LOCAL, *SMALL, *overrides)
    assert ended.returncode == 1
    assert sorted(run.info.status for run in store.runs()) == ["FAILED", "FINISHED"]
    rows = [line.split() for line in ended.stdout.splitlines() if line.startswith("  accum")]
    assert [row[:2] for row in rows] == [["accum", "0.01"], ["accum", "1000000000000.0"]]  # which diverged
    said = [" ".join(line.split()[:2]) for line in ended.stderr.splitlines()]
    assert said == ["[1/4] accum", "[3/4] accum", "[4/4] accum"]
    ends = [line.split(": ")[1] for line in ended.stderr.splitlines()]
    assert ends == ["FAILED", "REFUSED", "REFUSED"]
    (sweep,) = (store.folder / "jobs").iterdir()
    assert {path.name for path in sweep.iterdir() if path.is_dir()} == {"0", "1", ".submitit"}, "not those refused"


def guards(store: Store) -> list[int]:
    """The processes by which submitit watches over its jobs."""
    return [int(file.name.split("_")[0]) for file in store.folder.glob("jobs/*/.submitit/*/*_submitted.pkl")]


@pytest.mark.slow
@pytest.mark.soak
def test_a_lost_job_is_named_and_the_others_are_waited_for(store: Store) -> None:
    sweep = subprocess.Popen(
        store.command(*LOCAL, "seed=0,1", *LONG), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until(lambda: len(store.runs()) == 2 and all(run.data.metrics for run in store.runs()))
        lost, other = (int(Path(f"/proc/{pid}/task/{pid}/children").read_text()) for pid in guards(store))
        os.kill(lost, signal.SIGKILL)
        os.kill(other, signal.SIGUSR2)  # what submitit sends when the time is nearly over
        _, said = sweep.communicate(timeout=400)
    finally:
        sweep.kill()
    assert sweep.returncode == 130
    assert [run.info.status for run in store.runs()] == [KILLED, KILLED]
    messages = "\n".join(sorted(line.split(": ", 1)[1] for line in said.splitlines()))
    assert re.fullmatch(r"KILLED: interrupted\nKILLED: its time was nearly over; .*timeout_min= .*", messages)


@pytest.mark.slow
def test_an_interrupted_sweep_leaves_no_job_behind(store: Store) -> None:
    sweep = subprocess.Popen(store.command(*LOCAL, "seed=0,1", *LONG), stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: len(store.runs()) == 2 and all(run.data.metrics for run in store.runs()))
        pids = guards(store)
        sweep.send_signal(signal.SIGTERM)
        _, said = sweep.communicate(timeout=400)
    finally:
        sweep.kill()
    stopping = "stopping the jobs, each after its current update; Ctrl-C again does not wait for them\n"
    assert (sweep.returncode, said) == (130, f"{stopping}interrupted; what was logged until then is kept\n")
    assert [run.info.status for run in store.runs()] == [KILLED, KILLED]
    assert len(pids) == 2
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.slow
def test_jobs_of_joblib_end_with_a_checkpoint_when_the_sweep_is_interrupted(store: Store) -> None:
    """Ctrl-C reaches all processes of the terminal at once; joblib by itself would kill its jobs."""
    command = store.command("-m", "hydra/launcher=joblib", "seed=0,1,2", *LONG)
    sweep = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        wait_until(lambda: len(store.runs()) == 2 and all(run.data.metrics for run in store.runs()))
        os.killpg(sweep.pid, signal.SIGINT)
        _, said = sweep.communicate(timeout=400)
    finally:
        sweep.kill()
    assert sweep.returncode == 130
    assert "stopping the jobs, each after its current update; Ctrl-C again does not wait for them\n" in said
    assert said.endswith("interrupted; what was logged until then is kept\n") and "Traceback" not in said
    assert [run.info.status for run in store.runs()] == [KILLED, KILLED]
    checkpoints = store.folder.glob("jobs/*/*/resume/update-*.safetensors")
    assert {path.parent.parent.name for path in checkpoints} == {"0", "1"}
    assert sorted(path.parent.name for path in store.folder.glob("jobs/*/*/job.json")) == ["0", "1"], "no other began"


def test_what_slurm_refuses_is_one_sentence_and_a_job_without_result_is_failed(tmp_path: Path) -> None:
    hydra = {"sweep": {"dir": str(tmp_path)}, "launcher": {"submitit_folder": f"{tmp_path}/.submitit/%j"}}
    hydra["launcher"]["_target_"] = "LocalLauncher"
    sweep = OmegaConf.create({"hydra": hydra})
    said = submitit.settle_lost_jobs(sweep, RuntimeError("sbatch: error: invalid partition specified: lnog\nmore"))
    assert "(sbatch: error: invalid partition specified: lnog); write hydra.launcher.partition=" in said
    pickle = tmp_path / ".submitit" / "999999999" / "999999999_submitted.pkl"
    pickle.parent.mkdir(parents=True)
    pickle.touch()
    assert submitit.settle_lost_jobs(sweep, RuntimeError("has not produced any output")) == ""
    result = JobFolder(tmp_path / "0").result()
    assert result and (result.name, result.status) == ("job 0", FAILED) and "it was lost" in result.message


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MlflowServer]:
    """An MLflow server with a store of its own."""
    (tmp_path / "server").mkdir()
    server = MlflowServer(tmp_path / "server")
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.mark.slow
def test_a_sweep_logs_all_it_has_to_a_server_over_http(store: Store, server: MlflowServer, trained: Store) -> None:
    """That jobs may log to one at once, tests/tracking/storage/test_many_writers.py says."""
    same = ("accel=accum", "data.val_fraction=0.1", "train.target_accuracy=0.05")
    command = [str(ROOT / "run.py"), "-m", "seed=0,1", *SMALL, *same, f"hydra.sweep.dir={store.folder}/jobs"]
    ended = forking.run(command, store.folder, {**os.environ, "MLFLOW_TRACKING_URI": server.uri}, 300)
    assert ended.returncode == 0, ended.stderr
    assert f"{server.uri}/#/experiments/" in ended.stdout
    client = server.client
    names = {experiment.name: experiment.experiment_id for experiment in client.search_experiments()}
    ids = list(names.values())
    found = client.search_runs(ids)
    runs = {run.data.params["seed"]: run for run in found if KIND not in run.data.tags}
    (parent,) = [run.info.run_id for run in found if KIND in run.data.tags]
    assert {run.data.tags["mlflow.parentRunId"] for run in runs.values()} == {parent}
    assert "report.html" in {file.path for file in client.list_artifacts(parent)}
    assert set(runs) == {"0", "1"}
    expected = trained.runs()[0]
    for run in runs.values():
        assert run.info.status == "FINISHED"
        assert set(run.data.metrics) == set(expected.data.metrics)
        files = {file.path for file in client.list_artifacts(run.info.run_id)}
        assert files == {file.path for file in trained.client.list_artifacts(expected.info.run_id)}
        config = client.download_artifacts(run.info.run_id, "config.yaml", str(store.folder))
        assert OmegaConf.load(config).accel.accum.steps == 4
    found = runs["0"].info.run_id
    for name, points in trained.history(expected).items():
        assert [(point.step, point.value) for point in client.get_metric_history(found, name)] == points
    assert {path.name for path in store.folder.iterdir()} <= {"jobs", "server", "config.yaml"}
