"""Learning-rate schedules, evaluated per update over the whole job."""

from __future__ import annotations

import math

from msaccel import schema


def rate(schedule: schema.ScheduleSettings, peak: float, update: int, updates_per_epoch: int, total: int) -> float:
    """The learning rate of one update.

    Args:
        schedule: kind and lengths, in epochs or fractions of the job (`schedule.unit`).
        peak: the rate that the optimizer's settings give.
        update: its number, counted from 0.
        updates_per_epoch: updates in one pass over the training set.
        total: updates of the whole job; decays end there.

    Returns:
        peak · (update + 1) / warm-up updates during warm-up, and the schedule's value afterwards.
    """
    unit = updates_per_epoch if schedule.unit == "epochs" else total
    warmup = schedule.warmup * unit
    if update < warmup:
        return peak * min(1.0, (update + 1) / warmup)
    if isinstance(schedule, schema.StepSettings):
        passed = sum(update >= round(milestone * unit, 6) for milestone in schedule.milestones)  # 0.55 · 100 > 55
        return peak * schedule.gamma**passed
    if isinstance(schedule, schema.DecaySettings):
        begin = max(warmup, total - schedule.decay * unit) if isinstance(schedule, schema.TrapezoidSettings) else warmup
        done = max(0.0, update - begin) / (total - begin)
        shape = (1 + math.cos(math.pi * done)) / 2 if schedule.name == "cosine" else 1 - done
        return peak * (schedule.final_factor + (1 - schedule.final_factor) * shape)
    return peak
