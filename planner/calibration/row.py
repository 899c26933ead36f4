"""Row: one measured run that can be priced, with the seconds of its step."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import pstdev

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
    def program(self) -> str:
        """Return the name of the program that ran, as the row has it."""
        return self.case.run.framework or "not stated"

    @property
    def may_be_of_several_stacks(self) -> bool:
        """Return whether the stack is not known; a network that is not makes others as well."""
        own = self.case.job.stack
        return any(other.job.stack is not own for other in self.case.others)

    @property
    def model(self) -> str:
        """Return the model's name."""
        return self.case.graph.name


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Why a run is no row: a reason that others share, and what in this one is to blame."""

    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorting:
    """The rows of each pair, and how many runs were left out for which reason.

    A reason goes with what was to blame in the first run that it holds of. `read_as` is the stack
    that runs of a program were priced under whose own is not known.
    """

    rows: dict[Pair, list[Row]] = field(default_factory=dict)
    read_as: dict[str, Stack] = field(default_factory=dict)
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
    answers = [_row(run) for run in runs]
    first: dict[str, LeftOut] = {}
    for program, rows in _by_unknown_program(answers).items():
        found.read_as[program] = stack or _closest_stack(rows)
    for answer in answers:
        wanted = answer
        if isinstance(answer, Row):
            wanted = _wanted(_read_as(answer, found.read_as), device=device, stack=stack)
        if isinstance(wanted, Row):
            found.rows.setdefault(wanted.pair, []).append(wanted)
        else:
            one = first.setdefault(wanted.reason, wanted)
            found.left_out[f"{one.reason}: {one.detail}" if one.detail else one.reason] += 1
    return found


def _by_unknown_program(answers: Iterable[Row | LeftOut]) -> dict[str, list[Row]]:
    """Return the rows whose stack is not known, by the program that they name."""
    programs: dict[str, list[Row]] = {}
    for answer in answers:
        if isinstance(answer, Row) and answer.may_be_of_several_stacks:
            programs.setdefault(answer.program, []).append(answer)
    return programs


def _closest_stack(rows: Sequence[Row]) -> Stack:
    """Return the stack whose predictions differ least from the rows' steps, up to a factor.

    How far off they are together is what a calibration finds; that they scatter is not.
    """
    errors: dict[Stack, list[float]] = {}
    for row in rows:
        for case in (row.case, *row.case.others):
            step = case.price().step_seconds.p50
            errors.setdefault(case.job.stack, []).append(math.log(row.measured_seconds / step))
    most = max(map(len, errors.values()))
    whole = {stack: own for stack, own in errors.items() if len(own) == most}
    return min(whole, key=lambda stack: pstdev(whole[stack]))


def _read_as(row: Row, read_as: Mapping[str, Stack]) -> Row:
    """Return the row under the stack that its program was found to be closest to."""
    stack = read_as.get(row.program) if row.may_be_of_several_stacks else None
    cases = (row.case, *row.case.others)
    own = next((case for case in cases if case.job.stack is stack), row.case)
    return replace(row, case=replace(own, others=()))


def _row(run: MeasuredRun) -> Row | LeftOut:
    """Return the run as a row, or why it is none; bulk runs are left out, as in validation."""
    if run.tier == BULK_TIER:
        return LeftOut(reason="bulk")
    try:
        case = case_of(run)
    except Unpriced as why:
        return LeftOut(reason=f"unpriced: {why.reason.name.lower()}", detail=why.detail)
    seconds = measured_seconds(case)
    if isinstance(seconds, SetAside):
        return LeftOut(reason=f"step: {seconds.name.lower()}")
    return Row(case=case, measured_seconds=seconds)


def _wanted(row: Row, *, device: str | None, stack: Stack | None) -> Row | LeftOut:
    if device not in {None, row.pair[0]}:
        return LeftOut(reason="another device")
    return row if stack in {None, row.pair[1]} else LeftOut(reason="another stack")
