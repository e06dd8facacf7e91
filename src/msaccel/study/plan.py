"""The plan of a study: its jobs by arm and rate, how many are done, the hours left, and where its runs come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msaccel.compare.runs import Record, short
from msaccel.study.protocol import StudyPart
from msaccel.study.runner import StudyRunner


def plan(runner: StudyRunner) -> tuple[list[str], float]:
    """The lines of the plan, and the hours left if no grid of rates grows and every look is taken."""
    lines, total = [f"{runner.study.name}: {runner.study.claim}"], 0.0
    for key, part in runner.study.parts.items():
        jobs, found = runner.jobs(part), runner.runs.of_jobs(runner.jobs(part))
        missing = len(runner.missing(part))
        later = _later(runner, part) if missing else 0
        seconds = runner.seconds(part)
        hours = (missing + later) * seconds / part.beside / 3600
        total += hours
        further = f" and about {later} that depend on them" if later else ""
        lines.append(
            f"  {key}: {len(found)} jobs done, {missing} missing{further}; about {hours:.2f} hours, "
            f"{part.beside} at a time, {seconds:.0f} s each"
        )
        for arm in part.arms:
            rates = dict.fromkeys(job.rate for job in jobs if job.arm == arm)
            cells = []
            for rate in sorted(rates):
                of_rate = [job for job in jobs if (job.arm, job.rate) == (arm, rate)]
                cells.append(f"{rate:g}: {sum(job in found for job in of_rate)}/{len(of_rate)}")
            lines.append(f"    {arm}  {'  '.join(cells)}")
        lines += [f"    {sentence}" for sentence in mixed(found.values())]
    return lines, total


def most_jobs(part: StudyPart) -> int:
    """The jobs of a part if its grids are not extended and every look is taken."""
    arms, rates, n = len(part.arms), len(part.rates), part.seeds[-1]
    of_all = min(rates, 2 * part.neighbours + 1) if part.tuned else rates
    controls = 2 * part.seeds[0] if part.controls else 0
    return arms * (of_all * n + (rates - of_all) * part.first_seeds) + controls


def _later(runner: StudyRunner, part: StudyPart) -> int:
    """The jobs of a part that are not known yet, if its grids do not grow and every look is taken."""
    planted, again = runner.controls(part) if not runner.runs.missing(runner.trials(part)) else ([], [])
    return max(0, most_jobs(part) - len({*runner.jobs(part), *planted, *again}))


def mixed(runs: Iterable[Record]) -> list[str]:
    """A sentence for each of processor, kernels and commit in which the runs differ."""
    tags = [run.tags | {"git_commit": short(run.tags.get("git_commit", "unknown"))} for run in runs]
    sentences = []
    for key in ("processor", "kernels", "git_commit"):
        values = Counter(of_run.get(key, "unknown") for of_run in tags)
        if len(values) > 1:
            named = ", ".join(f"{value} ({many} runs)" for value, many in values.most_common())
            sentences.append(f"mixed runs: {key} is {named}.")
    return sentences
