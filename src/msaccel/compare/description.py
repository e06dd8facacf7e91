"""The description of a run on its page: its result, its difference to the baselines at hand, and its command."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from statistics import mean

from mlflow import MlflowClient

from msaccel.compare.baselines import is_baseline, pairs
from msaccel.compare.groups import conditions, group
from msaccel.compare.measures import BEST, FINAL, SECONDS, THROUGHPUT, values
from msaccel.compare.runs import Record, record
from msaccel.tracking.credentials import scrubbed
from msaccel.tracking.saved_view import DESCRIPTION
from msaccel.tracking.status import FINISHED

_MOST = 500  # baselines that are read, the newest ones
_LONGEST = 5000  # characters that every version of MLflow takes as the value of a tag


def describe(client: MlflowClient, run_id: str, note: str, overrides: Iterable[str]) -> None:
    """Writes the description of a finished run, unless somebody has written one meanwhile.

    Args:
        note: the user's, with which the description begins; the run has it already.
        overrides: as typed.
    """
    run = client.get_run(run_id)
    if run.data.tags.get(DESCRIPTION, note) != note:
        return
    own = record(run)
    wanted = f"params.accel = 'none' and attributes.status = '{FINISHED}'"
    newest = ["attributes.start_time DESC"]
    found = client.search_runs([run.info.experiment_id], wanted, max_results=_MOST, order_by=newest)
    baselines = [record(other) for other in found if other.info.run_id != run_id]
    parts = [note, _result(own), *_differences(own, baselines), _command(overrides)]
    text = "\n\n".join(filter(None, parts))
    client.set_tag(run_id, DESCRIPTION, text if len(text) <= _LONGEST else "\n\n".join(filter(None, parts[:-1])))


def _result(own: Record) -> str:
    shown = {FINAL: "final accuracy {}", BEST: "best accuracy {}"}
    if not own.simulated:
        shown |= {SECONDS: "{} s of training", THROUGHPUT: "{} samples/s"}
    known = {measure: measure.read(own) for measure in shown}
    numbers = {measure: measure.number_format.format(value) for measure, value in known.items() if value is not None}
    return f"**{', '.join(shown[measure].format(number) for measure, number in numbers.items())}**"


def _differences(own: Record, baselines: Iterable[Record]) -> Iterator[str]:
    """A line for each baseline with otherwise equal settings, or why there is none; nothing about a baseline."""
    alike = [other for other in baselines if conditions(other) == conditions(own)]
    (found,) = group([own, *alike])
    method = next(each for each in found.methods if own in each.runs)
    accuracy = FINAL.read(own)
    if is_baseline(method) or accuracy is None:
        return
    accepted, refused = pairs(found)
    fair = [pair for pair in accepted if pair.method is method and not pair.differing]
    for pair in fair:
        known = values(pair.baseline, FINAL)
        usual, runs = mean(known.values()), "run" if len(known) == 1 else "runs"
        yield (
            f"{100 * (accuracy - usual):+.2f} points against the baseline ({pair.name}): {usual:.2%}, the mean of "
            f"{len(known)} {runs}. Whether that is more than chance says `python -m msaccel compare`."
        )
    if not fair and accepted:
        keys = ", ".join(accepted[0].differing)
        yield f"There is no baseline with the same settings; the nearest one has another {keys}."
    elif not fair:
        yield from (refusal.sentence for refusal in refused)


def _command(overrides: Iterable[str]) -> str:
    typed = [scrubbed(text) for text in overrides if not text.startswith("sweep.resume=")]
    return f"```\n{shlex.join(['python', 'run.py', *typed])}\n```"
