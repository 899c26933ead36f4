"""Foreign run: a plan that another framework runs, what it must be like, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from executor.step_clock import StepClock
from planner.errors import InputError
from planner.exporters.draft import Draft
from planner.schema.plan import Plan


def read_plan(plan: Plan | str | Path) -> Plan:
    """Return the plan, read where it is a path.

    Raises:
        DocumentError: if the file cannot be read as a plan.
    """
    return plan if isinstance(plan, Plan) else Plan.read(Path(plan))


def check_same(field: str, *, found: object, planned: object) -> None:
    """Return if a setting of the framework is the plan's.

    Raises:
        InputError: if it is another.
    """
    if found != planned:
        raise InputError(
            f"is not the plan's, which has {planned}",
            field=field,
            value=found,
            remedy=f"leave {field} as the plan has it, or plan for what you set",
        )


def check_ranks(found: int, plan: Plan) -> None:
    """Return if there are as many ranks as the plan has.

    Raises:
        InputError: if there are more or fewer.
    """
    planned = plan.strategy.world_size
    if found != planned:
        raise InputError(
            f"the plan is for {planned} ranks",
            field="world size",
            value=found,
            remedy=f"start {planned} processes, or plan for the devices that are there",
        )


def row_counts(batch: Any) -> Iterator[int]:
    """Yield how many rows each tensor of a batch has, however deep it lies in it."""
    if hasattr(batch, "shape"):
        yield from batch.shape[:1]
    elif isinstance(batch, Mapping):
        yield from row_counts(list(batch.values()))
    elif isinstance(batch, list | tuple):
        for item in batch:
            yield from row_counts(item)


class ForeignRun:
    """What is said of a run: first what is not as planned, in the end its steps beside the plan."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.clock = StepClock()

    @property
    def plan(self) -> Plan:
        """Return the plan."""
        return self.draft.plan

    def first_lines(self) -> Iterator[str]:
        """Yield a line for each loss of the plan in the framework."""
        for loss in self.draft.losses:
            yield f"not as planned: {loss}"

    def last_line(self) -> str:
        """Return the measured step beside the predicted one."""
        return self.clock.line(self.plan)


def say(line: str) -> None:
    """Print a line for the person who watches the run."""
    print(line, flush=True)  # noqa: T201 - the script is theirs, and shows what it prints
