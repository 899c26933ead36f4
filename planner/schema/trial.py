"""Trial: a few steps of a strategy, measured beside those of others on the same ranks."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from planner.schema.document import Document, Part
from planner.schema.plan import Plan
from planner.schema.strategy import Strategy

AGREEING_ROUNDS, AGREEMENT_RATIO = 3, 1.05
"""So many rounds in a row, the slowest within this of the fastest, are of a machine left alone."""

StepSeconds = Annotated[float, Field(gt=0)]


class TrialPlans(Document):
    """The plans to try, in their order."""

    plans: Annotated[tuple[Plan, ...], Field(min_length=1)]


class Trial(Part):
    """A strategy with the seconds of each of its timed steps, or why the executor refuses it."""

    strategy: Strategy
    step_seconds: tuple[StepSeconds, ...] = ()
    refusal: str | None = None


class Trials(Document):
    """The trials of some plans, in their order."""

    trials: tuple[Trial, ...]


def rounds_agree(times: Sequence[Sequence[float]]) -> bool:
    """Return whether the last rounds took as long as one another; times are [trials, rounds]."""
    last = [sum(steps) for steps in zip(*times, strict=True)][-AGREEING_ROUNDS:]
    return len(last) == AGREEING_ROUNDS and max(last) <= AGREEMENT_RATIO * min(last)


def agreed(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials with the last rounds alone if these agree, else as they are."""
    if not rounds_agree([trial.step_seconds for trial in trials if trial.step_seconds]):
        return list(trials)
    return [
        trial.model_copy(update={"step_seconds": trial.step_seconds[-AGREEING_ROUNDS:]})
        for trial in trials
    ]


def round_seconds(trials: Sequence[Trial]) -> list[float]:
    """Return the median step of each round, of the trials that ran in all of them."""
    count = max(len(trial.step_seconds) for trial in trials)
    always = [trial.step_seconds for trial in trials if len(trial.step_seconds) == count]
    return [statistics.median(steps) for steps in zip(*always, strict=True)]


def typical_seconds(trials: Sequence[Trial]) -> list[float | None]:
    """Return the median step of each trial, `None` where it was refused.

    Steps are in the order of rounds. What else the machine does slows some rounds as a whole, of
    which trials that ran in few of them would be seen to be faster or slower than others: each step
    is scaled to a usual round, by the median of the trials that ran in all.
    """
    rounds = round_seconds(trials)
    usual = statistics.median(rounds) if rounds else 0.0
    return [
        statistics.median(
            seconds * usual / paced
            for seconds, paced in zip(trial.step_seconds, rounds, strict=False)
        )
        if trial.step_seconds
        else None
        for trial in trials
    ]
