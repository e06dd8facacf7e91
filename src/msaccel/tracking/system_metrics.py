"""MLflow's own system metrics, logged to a job's run: processors, memory, disk, network and GPUs of its first rank."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from msaccel.tracking.mlflow_run import Run
from msaccel.tracking.retry import reason

_log = logging.getLogger(__name__)


@contextmanager
def system_metrics(run: Run) -> Iterator[None]:
    """Logs `system/...` from a thread of MLflow's until the block ends.

    A job that fails or is told to end does not wait for the last of them: the thread ends with its process.
    """
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor  # which needs psutil

    try:
        monitor = SystemMetricsMonitor(run.run_id, resume_logging=True, tracking_uri=run.client.tracking_uri)
        monitor.start()
    except Exception as error:  # from MLflow's measuring libraries: no reason to end a job
        _log.warning("tracking.system_metrics: there are none (%s).", reason(error))
        yield
        return
    yield
    monitor.finish()
