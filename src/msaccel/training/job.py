"""One job: the parts that the configuration names, built, trained and reported."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import replace

import numpy as np

from msaccel import kernels, schema
from msaccel.config.checks import too_few_classes, too_few_samples
from msaccel.config.derived import transform
from msaccel.config.overrides import typed_store
from msaccel.data.dataset import DatasetSplits
from msaccel.data.load import load_datasets
from msaccel.devices import contention
from msaccel.distributed.communicator import SINGLE_PROCESS, Communicator, digest
from msaccel.distributed.sync import broadcast_parameters, must_agree
from msaccel.errors import DataError, DivergedError, UserError
from msaccel.launch.job import Task
from msaccel.launch.job_folder import JobFolder
from msaccel.launch.resume_changes import fixed_settings
from msaccel.schema import Config
from msaccel.step.batch_norm import RunningStatistics
from msaccel.tracking import ui_links
from msaccel.tracking.mlflow_run import UPDATES, Run
from msaccel.tracking.null_run import NullRun
from msaccel.tracking.progress_bar import ProgressBar
from msaccel.tracking.provenance import environment, processor
from msaccel.tracking.start import start
from msaccel.tracking.system_metrics import system_metrics
from msaccel.tracking.ui_view import DESCRIPTION
from msaccel.training.builder import Builder, build_network, prepare_device, summary
from msaccel.training.earlier_runs import fetch_from_runs
from msaccel.training.loop import Training
from msaccel.training.plan import Plan
from msaccel.training.progress import Counts
from msaccel.training.results import beside_others, log_and_finish, log_what_there_is
from msaccel.training.resume_checkpoints import ResumeCheckpoints

_log = logging.getLogger(__name__)


def load_data(config: Config) -> DatasetSplits:
    """The job's data, transformed as its network reads it; sets `model.classes` to its number of classes if null.

    Raises:
        DataError: it is not available, or does not fit settings that could only be checked against the data.
    """
    data = replace(config.data, transform=transform(config.model, config.data))
    loaded = load_datasets(data, config.seed, config.model.input_shape())
    size = len(loaded.train) + len(loaded.validation or ())
    for refusal in [*too_few_classes(config, loaded.classes), *too_few_samples(config, size)]:
        raise DataError(refusal)
    config.model.classes = config.model.classes or loaded.classes
    return loaded


def run(config: Config, folder: JobFolder, task: Task) -> None:
    """Trains one of a job's ranks, or all of them, in this process, and leaves a run in MLflow.

    Raises:
        UserError: data, store or non-finite numbers stopped it. The run, if it was begun, is FAILED.
    """
    prepare_device(config.device, config.seed)
    comm = SINGLE_PROCESS if config.device.simulated or config.device.ranks == 1 else cluster(config.device)
    data = load_data(config)
    same_files = "give every server the same files in data.root or data.cache"
    must_match(comm, int(data.digest[:15], 16), "reads other data", same_files)
    plan = Plan(config, len(data.train))
    name = task.name
    if config.device.simulated:
        _log.info(f"{name}: SIMULATED: {config.device.ranks} virtual ranks in one CPU process; its times mean little.")
    if data.name != config.data.name:
        _log.info(f"{name}: the data is {data.name}")
    _log.info(f"{name}: {plan}")
    network = build_network(config, data.train)
    _log.info(f"{name}: {summary(network, config)}")
    _log.info(f"{name}: {kernels.current_backend()}")
    kernels_must_match(comm, kernels.current_backend().tag)
    broadcast_parameters(comm, list(network.get_parameters()))
    must_agree(comm, list(network.get_parameters()), "at the start")
    if comm.is_main:
        fetch_from_runs(config, folder.path)
    here = range(config.device.ranks) if comm.world_size == 1 else [comm.rank]
    statistics = RunningStatistics(network, here, comm)
    builder = Builder(network, config, comm, statistics, folder.path)
    stages, epoch_samples = builder.stages(plan), builder.epoch_samples(plan, data.train)
    resume_checkpoints = ResumeCheckpoints(
        config.checkpoint,
        folder.path,
        comm,
        identity={"data": data.digest, "kernels": kernels.current_backend().tag},
        run_id=task.resume,
        job_settings=fixed_settings(config),
    )
    resume_state = resume_checkpoints.read() if task.resume else None
    counts = Counts.of(resume_state.facts, plan.total_updates) if resume_state else Counts()
    run = begin(plan, folder, data, task) if comm.is_main else NullRun()
    resume_checkpoints.run_id = task.resume or run.run_id
    comm.barrier()
    with run, ProgressBar(name, alone=not task.quiet, silent=not comm.is_main) as bar:
        if task.resume:
            if comm.is_main:
                run.resumed(resume_state.update if resume_state else 0, task.changed)
                folder.accept_settings()
            how = f"goes on after update {resume_state.update}" if resume_state else "starts over"
            _log.info("%s: %s", name, how)
        training = Training(
            plan=plan,
            data=data,
            epoch_samples=epoch_samples,
            network=network,
            stages=stages,
            comm=comm,
            statistics=statistics,
            run=run,
            bar=bar,
            folder=folder.path,
            resume_checkpoints=resume_checkpoints,
            resume_state=resume_state,
            counts=counts,
            method_metrics=builder.method_metrics(),
            evaluation_weights=builder.evaluation_weights(plan, stages),
        )
        del resume_state  # training drops its arrays, too, once they are in their places
        monitored = config.tracking.system_metrics and comm.is_main
        before = contention.read()
        try:
            with system_metrics(run) if monitored else nullcontext():
                final = training.train()
            taken = contended(before, config.device, comm)
        except BaseException as error:
            if comm.is_main:
                run.failing()
                diverged = isinstance(error, DivergedError)
                log_what_there_is(run, training, folder.path, task.in_mlflow, diverged=diverged)
            raise
        if taken is not None:
            run.metrics(training.counts.updates, {"machine/contended": taken})
        seconds, speed = training.counts.clock.seconds, training.counts.speed
        times = "simulated" if config.device.simulated else f"{seconds:.1f} s of training, {speed:,.0f} samples/s"
        _log.info(f"{name}: final accuracy {final.accuracy:.2%}, loss {final.loss:.4f}, {times}")
        log_and_finish(run, training, folder.path, task.in_mlflow)
    if comm.is_main:
        experiment, said = beside_others(run, config, task)
        if experiment and not task.sweep_id:  # the jobs of a sweep share the page
            _log.info(f"  {ui_links.charts(ui_links.server_of(config.tracking.uri), experiment)}")
            if said:
                _log.info("%s: %s", name, said)
    resume_checkpoints.clear()  # last: a job that is killed before this goes on from them


def contended(before: contention.Reading, device: schema.DeviceSettings, comm: Communicator) -> float | None:
    """Share of the processor time of the first server's ranks that other programs took; all ranks must call it."""
    now = contention.read()
    comm.barrier()  # the first rank may have spent longer writing a text than a collective waits
    own = comm.all_gather(np.array([now.own - before.own]))[:, 0]
    if device.server_rank is not None:
        own = own[: device.ranks_per_server]
    return contention.contended(before, now, float(own.sum()), device.threads * len(own))


def cluster(device: schema.DeviceSettings) -> Communicator:
    from msaccel.distributed.cluster import Cluster

    return Cluster(device)


def must_match(comm: Communicator, digested: int, differs: str, mend: str) -> None:
    """Compares a digest of all ranks.

    Raises:
        UserError: they differ.
    """
    comm.barrier()  # making what was digested may take one server longer than a collective waits
    if others := comm.differ([digested]):
        raise UserError(f"rank {', '.join(map(str, others))} {differs} than rank 0; {mend}.")


def kernels_must_match(comm: Communicator, tag: str) -> None:
    """Compares the kernels of all ranks, whose gradients would otherwise round differently."""
    mend = "install a C++ compiler on every server, or write kernels.use=unfold on all of them"
    must_match(comm, digest([np.frombuffer(tag.encode(), np.uint8)]), "computes with other kernels", mend)


def begin(plan: Plan, folder: JobFolder, data: DatasetSplits, task: Task) -> Run:
    """The run in MLflow, new or resumed, with all that is known before the first update."""
    config = plan.config

    def created(run_id: str) -> None:
        folder.write("run.json", {"run_id": run_id, "tracking_uri": config.tracking.uri})

    store = typed_store(config, task.overrides)
    run = start(
        config,
        task.in_mlflow,
        task.sweep_id,
        folder.path,
        resume=task.resume,
        created=created,
        store=store,
        most_updates=plan.total_updates,
    )
    if "tracking.note" in task.changed:
        run.tag(**{DESCRIPTION: config.tracking.note or ""})
    log_identity(run, config, data, plan.total_updates)
    log_provenance(run, config, folder, task.overrides)
    return run


def log_identity(run: Run, config: Config, data: DatasetSplits, updates: int) -> None:
    """The data set, kernels, processor and number of updates, by which a comparison tells runs apart."""
    run.dataset(data, config.data.name)
    run.tag(kernels=kernels.current_backend().tag, processor=processor(), **{UPDATES: str(updates)})
    if data.name != config.data.name:  # the folder names its data: results on it are not results on ImageNet
        run.tag(data=data.name)


def log_provenance(run: Run, config: Config, folder: JobFolder, overrides: list[str]) -> None:
    """The resolved configuration, the overrides as typed, and the environment, as artifacts."""
    run.text("config.yaml", folder.config.read_text())
    run.text("overrides.txt", "".join(f"{line}\n" for line in overrides))
    run.text("environment.txt", environment())
