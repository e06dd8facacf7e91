"""The state of a training, from which a job is resumed: arrays, and facts that JSON can hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msaccel.checkpoint.state import State, add_prefix, assign, to_arrays, with_prefix
from msaccel.errors import CheckpointError

if TYPE_CHECKING:
    from msaccel.training.loop import Training


def arrays_of(training: Training) -> State:
    """All arrays that a resumed job needs; everything else is in `facts_of`."""
    own = training.evaluation_weights.state_dict() if training.evaluation_weights else {}
    return {
        **add_prefix("update", to_arrays(training.parameters())),
        **add_prefix("statistics", training.statistics.state_dict()),
        **add_prefix("meter", training.metrics.state_dict()),
        **add_prefix("curves", training.curves.state()),
        **add_prefix("evaluation_weights", own),
    }


def load_arrays(training: Training, arrays: State) -> None:
    """Restores what `arrays_of` returned, inside the current stage.

    Raises:
        CheckpointError: it belongs to another job.
    """
    training.stage.resume(training.counts.updates - training.counts.updates_before)
    try:
        assign(training.network.get_parameters(), with_prefix("update", arrays))
        training.stage.update.load_state_dict(with_prefix("update", arrays))
        training.statistics.load_state_dict(with_prefix("statistics", arrays))
        training.metrics.load_state_dict(with_prefix("meter", arrays))
        training.curves.restore(with_prefix("curves", arrays))
        if training.evaluation_weights:
            training.evaluation_weights.load_state_dict(with_prefix("evaluation_weights", arrays))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CheckpointError(f"the resume checkpoint is of another job ({error!r}); start a new job.") from error


def facts_of(training: Training) -> dict[str, Any]:
    """What a resumed job needs besides arrays, as JSON can hold it."""
    extra = [training.extra_forwards]  # once a number for each stage; a sum reads both
    return {**training.counts.state_dict(), "extra_forwards": extra, "unflushed": training.run.unflushed()}


def load_facts(training: Training, facts: dict[str, Any]) -> None:
    """Restores what `facts_of` returned, except its counts, which the training has already.

    Raises:
        CheckpointError: it is something else.
    """
    try:
        sampler = training.stage.budget.sampler  # IndexError if the stage is beyond the job's last one
        if not 0 <= training.counts.updates - training.updates_before_epoch() <= sampler.updates_per_epoch:
            raise ValueError("updates that its epoch does not have")
        training.extra_forwards = float(sum(facts["extra_forwards"]))
        training.run.log_again(facts["unflushed"])
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CheckpointError(f"the resume checkpoint is not understood ({error!r}); start a new job.") from error
    training.nonfinite.resume_after(training.counts.updates)
