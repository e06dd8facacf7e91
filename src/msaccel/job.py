"""One job: the parts that the configuration names, built, trained and reported."""

from __future__ import annotations

import gc
import shutil
from dataclasses import replace
from pathlib import Path

import mindspore as ms
from mlflow.exceptions import MlflowException

from msaccel import kernels, settings
from msaccel.accel.dimreduce.stages import PCA, SNAPSHOTS
from msaccel.build import build_network, build_stages
from msaccel.checks import SHAPES, TRANSFORMS, accel_label, run_name
from msaccel.data import Data, load
from msaccel.errors import UserError
from msaccel.jobfolder import JobFolder
from msaccel.loop import BEST, LAST, Training
from msaccel.plan import Plan
from msaccel.settings import Config
from msaccel.tracking import links
from msaccel.tracking.progress import Bar
from msaccel.tracking.provenance import environment
from msaccel.tracking.run import Run, start
from msaccel.tracking.store import open_store, without_password


def prepare_device(device: settings.Device, seed: int) -> None:
    """Sets MindSpore's process-wide context; before anything is built."""
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU" if device.simulated else device.target)
    ms.set_context(runtime_num_threads=device.threads)
    ms.set_seed(seed)


def load_data(config: Config) -> Data:
    """The job's data, transformed as its network reads it."""
    transform = TRANSFORMS[config.model.name]
    data = replace(config.data, transform=transform)
    if isinstance(data, settings.Synthetic):
        _, height, width = SHAPES[config.model.name]
        data = replace(data, height=height, width=width)
    return load(data, config.seed)


def run(config: Config, folder: JobFolder, overrides: list[str], sweep_id: str, quiet: bool) -> Run:
    """Trains one job in this process and leaves a run in MLflow.

    Raises:
        UserError: data, store or numbers do not allow it to go on. The run, if it was begun, is FAILED.
    """
    prepare_device(config.device, config.seed)
    data = load_data(config)
    plan = Plan(config, len(data.train))
    name = run_name(config)
    if config.device.simulated:
        print(f"{name}: SIMULATED: {config.device.ranks} virtual ranks in one CPU process; its times mean nothing.")
    print(f"{name}: {plan}", flush=True)
    gc.freeze()  # every compilation collects garbage, and what was imported never becomes any
    network = build_network(config)
    print(f"{name}: {kernels.chosen()}", flush=True)
    fetch_snapshots(config, folder.path)
    stages = build_stages(network, config, plan, folder.path)
    run = start(config, accel_label(config), name, sweep_id)
    folder.write("run.json", {"run_id": run.run_id, "tracking_uri": config.tracking.uri})
    with run:
        run.dataset(data, config.data.name)
        run.tag(kernels=kernels.chosen().tag)
        log_provenance(run, config, folder, overrides)
        with Bar(name, plan.total_updates, quiet) as bar:
            training = Training(plan, data, network, stages, run, bar, folder.path)
            try:
                final = training.train()
            finally:
                log_results(run, training, folder.path, name)
    seconds = training.clock.seconds
    speed = training.samples / seconds
    print(f"{name}: final accuracy {final.accuracy:.2%}, {seconds:.1f} s of training, {speed:,.0f} samples/s")
    experiment = run.client.get_run(run.run_id).info.experiment_id
    print(f"  {links.charts(links.server_of(config.tracking.uri), experiment)}", flush=True)
    return run


def fetch_snapshots(config: Config, folder: Path) -> None:
    """Lays the snapshots of `accel.dimreduce.from_run` where a first stage would have written them."""
    wanted = config.accel.get("dimreduce")
    if wanted and wanted.from_run:
        client = open_store(config.tracking.uri)
        try:
            found = Path(client.download_artifacts(wanted.from_run, f"dimreduce/{SNAPSHOTS}"))
        except (MlflowException, OSError) as error:
            raise UserError(
                f"accel.dimreduce.from_run={wanted.from_run} has no snapshots in this store; "
                "write the id of a run with accel=dimreduce, as MLflow shows it."
            ) from error
        shutil.copytree(found, folder / SNAPSHOTS)


def log_provenance(run: Run, config: Config, folder: JobFolder, overrides: list[str]) -> None:
    """The resolved configuration, the overrides as typed, and the environment, as artifacts."""
    uri = config.tracking.uri
    run.text("config.yaml", folder.config.read_text().replace(uri, without_password(uri)))
    run.text("overrides.txt", "".join(f"{line}\n" for line in overrides).replace(uri, without_password(uri)))
    run.text("environment.txt", environment())


def log_results(run: Run, training: Training, folder: Path, name: str) -> None:
    """Checkpoints and curves, as far as the training came."""
    for below, files in {"checkpoints": (LAST, BEST), "dimreduce": (SNAPSHOTS, PCA)}.items():
        for file in files:
            if (folder / file).exists():
                run.artifact(folder / file, below)
    if training.curves.points:
        training.curves.save(folder / "curves.png", name)
        run.artifact(folder / "curves.png")
