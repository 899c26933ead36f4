"""Row: one measured run that can be priced, with the seconds of its step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from planner.hardware import device_profile
from planner.schema.job import Stack
from planner.schema.measured_run import MeasuredRun
from planner.validation.case import Case, case_of
from planner.validation.measurement import BULK_TIER, measured_seconds
from planner.validation.reasons import SetAside, Unpriced

Pair = tuple[str, Stack]
"""A device's name and the stack on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A case, and what its step took."""

    case: Case
    measured_seconds: float

    @property
    def pair(self) -> Pair:
        """Return the device and the stack."""
        return self.case.hardware.kinds[0].device, self.case.job.stack

    @property
    def family(self) -> str:
        """Return the source of runs that this one is of."""
        return self.case.run.family_name

    @property
    def model(self) -> str:
        """Return the model's name."""
        return self.case.graph.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorting:
    """The rows of each pair, and how many runs were left out for which reason."""

    rows: dict[Pair, list[Row]] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)

    @property
    def run_count(self) -> int:
        """Return how many runs there were."""
        return sum(map(len, self.rows.values())) + self.left_out.total()


def sorted_rows(
    runs: Iterable[MeasuredRun], *, device: str | None = None, stack: Stack | None = None
) -> Sorting:
    """Return the runs as rows by device and stack: all, or those of one.

    Raises:
        InputError: if no profile is called `device`.
    """
    if device is not None:
        device_profile(device)
    found = Sorting()
    for run in runs:
        answer = _row(run)
        if isinstance(answer, Row):
            answer = _wanted(answer, device=device, stack=stack)
        if isinstance(answer, Row):
            found.rows.setdefault(answer.pair, []).append(answer)
        else:
            found.left_out[answer] += 1
    return found


def _row(run: MeasuredRun) -> Row | str:
    """Return the run as a row, or why it is none; bulk runs are left out, as in validation."""
    if run.tier == BULK_TIER:
        return "bulk"
    try:
        case = case_of(run)
    except Unpriced as why:
        return f"unpriced: {why.reason.name.lower()}"
    if case.others:
        return "stack not known"
    seconds = measured_seconds(case)
    if isinstance(seconds, SetAside):
        return f"step: {seconds.name.lower()}"
    return Row(case=case, measured_seconds=seconds)


def _wanted(row: Row, *, device: str | None, stack: Stack | None) -> Row | str:
    if device not in {None, row.pair[0]}:
        return "another device"
    return row if stack in {None, row.pair[1]} else "another stack"
