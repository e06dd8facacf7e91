"""Each method's baseline: the runs that differ from it only by the method, or a sentence that says what is missing."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msaccel.accel import methods
from msaccel.compare.advice import BATCH, train_baseline
from msaccel.compare.groups import PRECISION, ComparisonSet, unlike
from msaccel.compare.method_runs import MethodRuns, is_baseline

SAME_MICRO_BATCH, SAME_GLOBAL_BATCH = "same micro-batch", "same global batch"
_LOSS_SCALE = "loss_scale."
_MAX_NAMES = 3
FULL = "fp32"
_OWN = ("accel", BATCH, _LOSS_SCALE)  # a method's own keys
_ASPECTS = {
    "model": "another model",
    "data": "other data",
    "device": "another device",
    "simulated": "simulated ranks against real ones, whose times are never compared",
    "precision": "another precision",
    "evaluation": "another evaluation",
    "budget": "another budget",
}


@dataclass(frozen=True, eq=False)
class BaselinePair:
    """A method and its baseline.

    Attributes:
        name: which baseline it is, since accumulation has two.
        differing: keys other than the method's own whose values differ.
    """

    method: MethodRuns
    baseline: MethodRuns
    name: str
    differing: tuple[str, ...]

    @property
    def sides(self) -> tuple[MethodRuns, MethodRuns]:
        """The method and its baseline."""
        return self.method, self.baseline


@dataclass(frozen=True)
class RefusedComparison:
    """Why a method is not compared.

    Attributes:
        aspect: what is unfair: model, data, device, simulated, precision, evaluation, budget, batch; or `missing`.
        methods: all that are refused for this reason.
    """

    aspect: str
    sentence: str
    methods: tuple[MethodRuns, ...]


def pairs(found: ComparisonSet) -> list[BaselinePair]:
    """Every method of a set with those of its baselines that the set has."""
    baselines = [method for method in found.methods if is_baseline(method)]
    known = {_key(baseline, baseline.number(BATCH) or 0): baseline for baseline in baselines}
    unscaled_last = sorted(found.methods, key=lambda method: method.param("loss_scale.mode") in ("", "none"))
    every = {_but_loss_scale(method.settings): method for method in unscaled_last}
    accepted: list[BaselinePair] = []
    for method in found.methods:
        wanted = [] if is_baseline(method) else _wanted(method)
        mine = [pair for name, batch in wanted if (pair := _nearest(method, name, batch, baselines, known))]
        in_float32 = _in_float32(method, every)
        if in_float32 and not (method.slots and mine):
            accepted.append(in_float32)
        accepted += mine
    return accepted


def without_baseline(
    found: ComparisonSet,
    accepted: Sequence[BaselinePair],
    others: Sequence[ComparisonSet],
    store: Sequence[str] = (),
) -> list[RefusedComparison]:
    """Why methods of a set lack a baseline, or one of two.

    Args:
        accepted: the set's pairs.
        others: sets under other conditions, in which a missing baseline may be found and named.
        store: overrides that name the store in a command, where it is not the default one.
    """
    baselines = [method for method in found.methods if is_baseline(method)]
    served = {pair.baseline for pair in accepted}  # a method in float32 may be another's baseline
    has: dict[MethodRuns, set[str]] = defaultdict(set)
    for pair in accepted:
        has[pair.method].add(pair.name)
    causes: dict[_Cause, list[MethodRuns]] = {}
    for method in (method for method in found.methods if not is_baseline(method) and method not in served):
        missing = [(name, batch) for name, batch in _wanted(method) if name not in has[method]]
        if not has[method]:
            causes.setdefault(_cause(method, found, baselines, others, store), []).append(method)
        elif missing and len(missing) < len(_wanted(method)):
            name, batch = missing[0]
            advice = train_baseline(method, store, batch)
            cause = _Cause("missing", "", f": there is no baseline of the {name}", advice)
            causes.setdefault(cause, []).append(method)
    return [cause.refusal(methods) for cause, methods in causes.items()]


def equal_pairs(found: ComparisonSet, one: MethodRuns) -> list[BaselinePair]:
    """The pairs with this method or baseline whose sides differ only by the method."""
    baselines = [method for method in found.methods if is_baseline(method)]
    known = {_key(baseline, baseline.number(BATCH) or 0): baseline for baseline in baselines}
    candidates = [method for method in found.methods if method not in baselines] if one in baselines else [one]
    every = [
        _nearest(method, name, batch, baselines, known) for method in candidates for name, batch in _wanted(method)
    ]
    return [pair for pair in every if pair and not pair.differing and one in pair.sides]


def _wanted(method: MethodRuns) -> list[tuple[str, float]]:
    """Names of the baselines of a method, and the micro-batch of each."""
    batch = method.number(BATCH) or 0
    known = [found for name in method.slots if (found := methods().get(name))]
    others = [each.baseline for each in known if each.baseline]
    if not method.slots:
        return [("without loss scaling", batch)]
    multiplied = [each.steps_key for each in known if each.steps_key]
    if not multiplied:
        return [(", ".join(others) or "without the method", batch)]
    total = batch * math.prod(method.number(key) or 1 for key in multiplied)
    named = [(SAME_MICRO_BATCH, batch), (SAME_GLOBAL_BATCH, total)]
    return [(", ".join([name, *others]), size) for name, size in named]


_Settings = tuple[tuple[str, str], ...]
_Key = tuple[float, _Settings]


def _nearest(
    method: MethodRuns, name: str, batch: float, baselines: Sequence[MethodRuns], known: Mapping[_Key, MethodRuns]
) -> BaselinePair | None:
    """The baseline with that micro-batch and the fewest other differences; among equals the one with the most runs."""
    alike = known.get(_key(method, batch))
    if alike:  # the usual case: comparing thousands of methods pair by pair would take millions of steps
        return BaselinePair(method, alike, name, ())
    near = [
        BaselinePair(method, baseline, name, _differing(method, baseline))
        for baseline in baselines
        if (baseline.number(BATCH) or 0) == batch and baseline.param(PRECISION) == method.param(PRECISION)
    ]
    return min(near, key=lambda pair: (len(pair.differing), -len(pair.baseline.runs)), default=None)


def _key(method: MethodRuns, batch: float) -> _Key:
    """What a method and its baseline have in common if they differ only by the method."""
    return batch, tuple(item for item in method.settings.items() if not item[0].startswith(_OWN))


def _in_float32(method: MethodRuns, every: Mapping[_Settings, MethodRuns]) -> BaselinePair | None:
    """The baseline of a lower precision by itself: the same job in float32."""
    if method.settings.get(PRECISION, FULL) == FULL:
        return None
    found = every.get(_but_loss_scale({**method.settings, PRECISION: FULL}))
    return BaselinePair(method, found, "float32", ()) if found else None


def _but_loss_scale(settings: Mapping[str, str]) -> _Settings:
    return tuple(item for item in settings.items() if not item[0].startswith(_LOSS_SCALE))


def _differing(method: MethodRuns, baseline: MethodRuns) -> tuple[str, ...]:
    """Keys that differ besides the method's own; loss scaling is a method's own where the baseline has none."""
    return tuple(
        key
        for key, value in method.settings.items()
        if not key.startswith(_OWN) and value and baseline.settings[key] and value != baseline.settings[key]
    )


@dataclass(frozen=True)
class _Cause:
    """Why methods are not compared: a sentence without their names, which go between `before` and `after`."""

    aspect: str
    before: str
    after: str
    advice: str

    def refusal(self, methods: Sequence[MethodRuns]) -> RefusedComparison:
        names = "; ".join(method.label for method in methods[:_MAX_NAMES])
        more = f" and {len(methods) - _MAX_NAMES} more" if len(methods) > _MAX_NAMES else ""
        sentence = f"{self.before}{names}{more}{self.after}; {self.advice}."
        return RefusedComparison(self.aspect, sentence, tuple(methods))


def _cause(
    method: MethodRuns,
    found: ComparisonSet,
    baselines: Sequence[MethodRuns],
    others: Sequence[ComparisonSet],
    store: Sequence[str],
) -> _Cause:
    batch = _wanted(method)[0][1]
    if baselines and not any(one.param(PRECISION) == method.param(PRECISION) for one in baselines):
        before = f"Refused, {_ASPECTS[PRECISION]}: {PRECISION} is {method.param(PRECISION)} for "
        after = f" and {baselines[0].param(PRECISION)} for none"
        return _Cause(PRECISION, before, after, train_baseline(method, store))
    if baselines:
        (alike, *_) = (one for one in baselines if one.param(PRECISION) == method.param(PRECISION))
        after = f" and {alike.param(BATCH)} for none, so updates differ in size"
        before = f"Refused: {BATCH} is {method.param(BATCH)} for "
        return _Cause("batch", before, after, train_baseline(method, store, batch))
    elsewhere = [other for other in others if any(map(is_baseline, other.methods))]
    if not elsewhere:
        return _Cause("missing", "", f" ({found.title}): there is no baseline", train_baseline(method, store))
    nearest = min(elsewhere, key=lambda other: len(unlike(found.conditions, other.conditions)))
    (aspect, key, value, of_none), *further = unlike(found.conditions, nearest.conditions)
    aspects = dict.fromkeys(_ASPECTS[one] for one in (aspect, *(other[0] for other in further)))
    values = [f" and {of_none or 'not set'} for none"]
    values += [f"{key} {value or 'not set'} and {of_none or 'not set'}" for _, key, value, of_none in further]
    advice = "train both on the same files" if key == "digest" and not further else train_baseline(method, store)
    before = f"Refused, {', '.join(aspects)}: {key} is {value or 'not set'} for "
    return _Cause(aspect, before, ", ".join(values), advice)
