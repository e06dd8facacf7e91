"""The end of a sweep: its runs are compared, and each job that did not finish gets a line."""

from __future__ import annotations

import logging
import shlex
from contextlib import suppress

from msaccel.config.overrides import uri_option
from msaccel.errors import UserError
from msaccel.launch.job import Result
from msaccel.sweeps import search, session
from msaccel.sweeps.folder import RESUME_HINT, SweepFolder
from msaccel.tracking.status import FAILED, FINISHED, KILLED, REFUSED

_log = logging.getLogger(__name__)


def finish(sweep: SweepFolder, current: session.Session) -> None:
    """Collects the results of all jobs, reports them, and marks the sweep finished if they all are."""
    current.results = results = sweep.results()
    finished = [result.run_id for result in results if result.status == FINISHED]
    record = sweep.record()
    expected = max(len(sweep.jobs()), (record and record.jobs) or 0)  # a launcher may have lost jobs without a trace
    if (lost := expected - len(results)) > 0 and not current.refusals:
        name = f"{lost} of the {expected} jobs"
        results.append(Result(name, FAILED, message="left no result, as on a full disk; see the messages above."))
    complete = len(finished) == expected and not current.refusals
    report(results, sweep, complete=complete)
    if best := search.best(sweep.path):
        _log.info("%s", best)
    if complete:
        sweep.finish(finished)
    elif any(result.status in (FAILED, KILLED) for result in results):
        _log.info(RESUME_HINT)
    discard_refused(sweep)


def discard_refused(sweep: SweepFolder) -> None:
    """Removes the folders of jobs that were never started; a resumed sweep checks these jobs again."""
    refused = [folder for folder in sweep.jobs() if (result := folder.result()) and result.status == REFUSED]
    for folder in refused:
        folder.discard()
    if refused and not sweep.jobs():
        sweep.files.clear()


def report(results: list[Result], sweep: SweepFolder, *, complete: bool) -> None:
    """Compares the finished runs with their baselines, and prints one line for each job that did not finish."""
    unfinished = [result for result in results if result.status != FINISHED]
    recorded = [result for result in results if result.run_id]  # none on servers but the first
    if recorded and len(unfinished) < len(results):
        try:
            compare(recorded, sweep, complete=complete)
        except Exception as error:  # the runs are safe in MLflow, and the sweep must not fail for its report
            record, of_sweep = sweep.record(), list[str]()
            with suppress(UserError):  # its file cannot be read
                of_sweep = ["--sweep", sweep.sweep_id]
            again = shlex.join(["compare", *of_sweep, *uri_option(record.store if record else ())])
            _log.warning(
                "the report was not made (%s: %s); try python -m msaccel %s", type(error).__name__, error, again
            )
    for result in unfinished:
        _log.error("%s: %s: %s", result.name, result.status, result.message)


def compare(results: list[Result], sweep: SweepFolder, *, complete: bool) -> None:
    """Prints the comparison of the jobs' runs, keeps the report with the sweep's own run and prints where it is."""
    from msaccel.compare import report, runs  # MLflow's import takes a second
    from msaccel.compare.render import terminal
    from msaccel.sweeps.parent_run import keep_report
    from msaccel.tracking.store import open_store

    uri = results[0].tracking_uri
    client = open_store(uri)
    found = [client.get_run(result.run_id) for result in results]
    record = sweep.record()
    answer = report.build([runs.record(run) for run in found], store=record.store if record else ())
    terminal.show(answer)
    overrides = record.command.overrides if record else []
    page = keep_report(client, answer, found, sweep.sweep_id, overrides, uri, complete=complete)
    _log.info("report: %s", page)
