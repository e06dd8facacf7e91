"""Trains the missing jobs of a study: every rate with a few seeds, then the best ones with all the seeds it takes.

What is missing follows from the runs in MLflow alone, so an interrupted study continues where it stopped. To train a
job again, delete its run there.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from mlflow import MlflowClient

from msaccel.compare.runs import Record
from msaccel.compare.runs import find as find_runs
from msaccel.errors import ConfigError, TrainingError
from msaccel.study import speed
from msaccel.study.answers import Answer, answer, controlled
from msaccel.study.jobs import RunIndex, StudyJob, make_jobs
from msaccel.study.launcher_pool import MIN_MEASURED, Launchers, progress
from msaccel.study.protocol import Hypothesis, Study, StudyPart
from msaccel.study.rates import Grids, best_rates, grown, neighbours
from msaccel.tracking.provenance import processor
from msaccel.tracking.status import FINISHED

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KnownJobs:
    """The jobs of a part, as far as the results of earlier ones say which follow.

    Attributes:
        every: those known so far.
        judged: those of the looks that are complete: an answer between two looks would be one more look.
        missing: those that can be trained next.
    """

    every: list[StudyJob]
    judged: list[StudyJob]
    missing: list[StudyJob]


@dataclass
class StudyRunner:
    """One study in one store.

    Attributes:
        overrides: of every job, after those of the study.
        published: runs from another store that also count as the study's.
        runs: the study's runs; read from the store again after each phase.
    """

    study: Study
    client: MlflowClient
    uri: str
    overrides: Sequence[str] = ()
    published: Sequence[Record] = ()
    runs: RunIndex = field(init=False)
    _tuned: dict[str, tuple[Grids, dict[str, float]]] = field(init=False)  # by the part's title
    _known: dict[str, KnownJobs] = field(init=False)  # by the part's title, too

    def __post_init__(self) -> None:
        self.refresh()

    def refresh(self) -> None:
        """Reads the runs from the store."""
        self.runs = RunIndex([*self.published, *find_runs(self.client, self.study.name)])
        self._tuned, self._known = {}, {}

    def grids(self, part: StudyPart) -> Grids:
        """The rates of each arm; they grow by half and double while the best rate of an arm is at their edge."""
        return self._tune(part)[0]

    def chosen_rates(self, part: StudyPart) -> dict[str, float]:
        """The best rate of each arm by validation accuracy of the trials; an arm that always failed has none."""
        return self._tune(part)[1]

    def _tune(self, part: StudyPart) -> tuple[Grids, dict[str, float]]:
        if not part.tuned:
            return part.grids, {arm: rates[0] for arm, rates in part.grids.items()}
        if part.title not in self._tuned:
            grids, best = part.grids, dict[str, float]()
            for _ in range(part.extend + 1):
                trials = self._at(part, grids, part.first_seeds)
                if self.runs.missing(trials):
                    break
                tried, best = grids, best_rates(self.runs.of_jobs(trials))
                # A rate at an edge may become the best with the seeds of a look, and would end without a verdict.
                with_looks = best_rates(self.runs.of_jobs(self._at(part, grids, part.seeds[-1])))
                grids = grown(part, grids, {*best.items(), *with_looks.items()})
            else:
                grids = tried
            self._tuned[part.title] = grids, best
        return self._tuned[part.title]

    def trials(self, part: StudyPart) -> list[StudyJob]:
        """Every arm at every rate, with the first seeds."""
        return self._at(part, self.grids(part), part.first_seeds)

    def _at(self, part: StudyPart, rates: Grids, n: int) -> list[StudyJob]:
        """The arms at these rates, with n seeds."""
        return make_jobs(self.study, part, self.overrides, rates, part.seed_range(n))

    def look(self, part: StudyPart, n: int) -> list[StudyJob]:
        """Every arm at its best rate and the neighbouring rates with n seeds, or at all rates if nothing is tuned."""
        rates = self.grids(part)
        if part.tuned:
            chosen = self.chosen_rates(part)
            rates = {arm: neighbours(rate, rates[arm], part.neighbours) for arm, rate in chosen.items()}
        return self._at(part, rates, n)

    def controls(self, part: StudyPart) -> tuple[list[StudyJob], list[StudyJob]]:
        """The baseline at the planted multiple of its rate, and at its rate with other seeds."""
        hypothesis, controls, chosen = part.hypothesis, part.controls, self.chosen_rates(part)
        rate = hypothesis and (hypothesis.rate or chosen.get(hypothesis.baseline))
        if not (hypothesis and controls and rate):
            return [], []
        first = part.seeds[0]
        seeds = range(controls.again, controls.again + first)
        planted = self._at(part, {hypothesis.baseline: [rate * controls.planted]}, first)
        return planted, make_jobs(self.study, part, self.overrides, {hypothesis.baseline: [rate]}, seeds)

    def jobs(self, part: StudyPart) -> list[StudyJob]:
        """The jobs of a part known so far: later ones depend on the results of earlier ones."""
        return self._known_jobs(part).every

    def missing(self, part: StudyPart) -> list[StudyJob]:
        """The jobs of a part that can be trained next."""
        return self._known_jobs(part).missing

    def _known_jobs(self, part: StudyPart) -> KnownJobs:
        if part.title not in self._known:
            known, judged = self.trials(part), list[StudyJob]()
            missing = self.runs.missing(known)
            for n in () if missing else part.seeds:
                look = self.look(part, n)
                known += look
                missing = self.runs.missing([*look, *(job for jobs in self.controls(part) for job in jobs)])
                while not missing and (favoured := self._favoured(part, known, n)):
                    known += favoured
                    missing = self.runs.missing(favoured)
                if missing:
                    break
                judged = [*known]
                if part.hypothesis and self._answer(part, judged).decided:
                    break
            self._known[part.title] = KnownJobs(*(list(dict.fromkeys(jobs)) for jobs in (known, judged, missing)))
        return self._known[part.title]

    def _favoured(self, part: StudyPart, known: Sequence[StudyJob], n: int) -> list[StudyJob]:
        """The jobs that bring the best rate of each arm so far to n seeds: with fewer it may be best by luck."""
        if not part.tuned:
            return []
        best = best_rates(self.runs.of_jobs(dict.fromkeys(known)))
        rates = {name: [rate] for name, rate in best.items()}
        jobs, before = self._at(part, rates, n), {*known}
        return [job for job in jobs if job not in before]

    def trained(self) -> list[Record]:
        """The runs of all parts, each once, without those of controls."""
        every = [run for part in self.study.parts.values() for run in self.runs.of_jobs(self.jobs(part)).values()]
        return list({run.run_id: run for run in every}.values())

    def answer(self, part: StudyPart, hypothesis: Hypothesis | None = None) -> Answer:
        """The answer of the complete looks to the part's hypothesis, or to another one about its arms."""
        judged = self._known_jobs(part).judged
        return self._answer(replace(part, hypothesis=hypothesis) if hypothesis else part, judged)

    def _answer(self, part: StudyPart, jobs: Sequence[StudyJob]) -> Answer:
        hypothesis = part.hypothesis
        assert hypothesis
        found = self.runs.of_jobs(dict.fromkeys(jobs))
        sides = (
            [run for job, run in found.items() if job.arm == name] for name in (hypothesis.method, hypothesis.baseline)
        )
        return answer(part, self.grids(part), *sides)

    def controlled(self, part: StudyPart) -> str:
        """Whether the controls of a part passed, as a sentence; empty while none are trained."""
        jobs = self.controls(part)
        planted, again = (list(self.runs.of_jobs(of_one).values()) for of_one in jobs)
        if not (planted and again):
            return ""
        (control, *_), n = jobs[1], part.seeds[0]
        alike = self._at(part, {control.arm: [control.rate]}, n)
        return controlled(part, list(self.runs.of_jobs(alike).values()), planted, again)

    def seconds(self, part: StudyPart) -> float:
        """The time of a job of a part: the median if three have finished, else as declared."""
        if part.speed:
            return part.seconds  # its runs begin when all is measured
        done = self.runs.of_jobs(self.jobs(part)).values()
        took = [(run.end_time - run.started) / 1000 for run in done if run.status == FINISHED and run.end_time]
        return statistics.median(took) if len(took) >= MIN_MEASURED else part.seconds

    def run(self) -> None:
        """Trains all missing jobs of every part.

        Raises:
            ConfigError: a job was refused, or speed was measured on another machine before.
            TrainingError: a job crashed.
            KeyboardInterrupt: a job was interrupted; the same command resumes it.
        """
        with Launchers(self.uri, f"study-{self.study.name}") as launchers:
            for key, part in self.study.parts.items():
                if part.speed and self.missing(part):
                    self._must_be_the_same_machine(key, part)
                while missing := self.missing(part):
                    if part.speed:
                        self._measure(key, part, sorted({job.seed for job in missing}))
                    else:
                        many = f"{len(missing)} {'job' if len(missing) == 1 else 'jobs'}, {part.beside} at a time"
                        _log.info("%s, %s: %s", self.study.name, key, many)
                        launchers.train(missing, part.beside, progress(len(missing), part.beside))
                    self.refresh()
                    if crashed := self.runs.missing(missing):
                        raise TrainingError(
                            f"{crashed[0]} of study {self.study.name}, part {key}, crashed; its output above and its "
                            "run in MLflow say why, and the same command trains it again."
                        )

    def _measure(self, key: str, part: StudyPart, seeds: Sequence[int]) -> None:
        """A round of all arms for each seed."""
        _log.info("%s, %s: %d rounds of %d arms in turns", self.study.name, key, len(seeds), len(part.arms))
        for number, seed in enumerate(seeds, 1):
            started = time.monotonic()
            arms = make_jobs(self.study, part, self.overrides, dict.fromkeys(part.arms, part.rates), [seed])
            speed.measure(self.uri, f"study-{self.study.name}", arms)
            _log.info("  %d/%d  finished, %.0f s", number, len(seeds), time.monotonic() - started)

    def _must_be_the_same_machine(self, key: str, part: StudyPart) -> None:
        here, runs = processor(), self.runs.of_jobs(self.jobs(part)).values()
        if elsewhere := sorted({run.tags.get("processor", "unknown") for run in runs} - {here}):
            # Earlier runs name the model alone, and no machine does so now.
            go_on = "" if any(here.startswith(f"{name} (") for name in elsewhere) else "go on there, or "
            raise ConfigError(
                f"study {self.study.name}: speeds of part {key} were measured on {' and '.join(elsewhere)}, and this "
                f"is {here}; {go_on}delete those runs in MLflow and in runs.csv."
            )
