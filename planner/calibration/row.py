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
from planner.schema.validation import Tally
from planner.validation.case import Case, case_of
from planner.validation.measurement import (
    BULK_TIER,
    TINY_TIER,
    measured_fit,
    measured_peak_bytes,
    measured_seconds,
)
from planner.validation.reasons import SetAside, Unpriced
from planner.validation.report import unread_tallies

_MEMORY_MOST = 1.1

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
class LeftOut:
    """Why a run is no row: a reason that others share, and what in this one is to blame.

    `case` is there where it has a price, for what is known of its peak.
    """

    reason: str
    detail: str = ""
    case: Case | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorting:
    """The rows of each pair, and how many runs were left out for which reason.

    A reason goes with what was to blame in the first run that it holds of. `read_as` is the stack
    that runs of a program were priced under whose own is not known. `peaked` are the runs of which
    it is known whether they fitted, with or without a measured step; `peaks_left_out` says of how
    many, and why, what they say cannot be. `unread` are keys that the format does not have.
    """

    rows: dict[Pair, list[Row]] = field(default_factory=dict)
    peaked: list[tuple[Case, bool]] = field(default_factory=list)
    read_as: dict[str, Stack] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    peaks_left_out: Counter[str] = field(default_factory=Counter)
    unread: tuple[Tally, ...] = ()

    @property
    def has_peaks(self) -> bool:
        """Return whether a peak was measured, or a run is known not to have fitted."""
        return any(
            not fitted or not isinstance(measured_peak_bytes(case.run), SetAside)
            for case, fitted in self.peaked
        )

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
    kept = list(runs)
    found = Sorting(unread=unread_tallies(kept))
    answers = [_row(run) for run in kept]
    first: dict[str, LeftOut] = {}
    for program, rows in _by_unknown_program(answers).items():
        found.read_as[program] = stack or _closest_stack(rows)
    for answer in answers:
        wanted = _wanted(_read_as(answer, found.read_as), device=device, stack=stack)
        if isinstance(wanted, Row):
            found.rows.setdefault(wanted.pair, []).append(wanted)
        else:
            one = first.setdefault(wanted.reason, wanted)
            found.left_out[f"{one.reason}: {one.detail}" if one.detail else one.reason] += 1
        if wanted.case is not None and (fitted := _fitted(wanted.case.run)) is not None:
            if _is_beyond_the_device(wanted.case):
                found.peaks_left_out["a peak of more than its device holds"] += 1
            else:
                found.peaked.append((wanted.case, fitted))
    return found


def _is_beyond_the_device(case: Case) -> bool:
    """Return whether a run says that it took more than a device of its kind has.

    Units of a thousand in place of 1,024, and names of sizes, make as much as a tenth.
    """
    peak, kind = measured_peak_bytes(case.run), case.hardware.kinds[0]
    return not isinstance(peak, SetAside) and peak > _MEMORY_MOST * kind.device_memory_bytes


def _fitted(run: MeasuredRun) -> bool | None:
    """Return whether a run is known to have fitted; tiny ones of test suites say nothing."""
    if run.tier in {TINY_TIER, BULK_TIER}:
        return None
    fitted = measured_fit(run)
    if isinstance(fitted, bool):
        return fitted
    return None if isinstance(measured_peak_bytes(run), SetAside) else True


def _by_unknown_program(answers: Iterable[Row | LeftOut]) -> dict[str, list[Row]]:
    """Return the rows whose stack is not known, by the program that they name."""
    programs: dict[str, list[Row]] = {}
    for answer in answers:
        if isinstance(answer, Row) and _may_be_of_several_stacks(answer.case):
            programs.setdefault(_program(answer.case), []).append(answer)
    return programs


def _program(case: Case) -> str:
    """Return the name of the program that ran, as the row has it."""
    return case.run.framework or "not stated"


def _may_be_of_several_stacks(case: Case) -> bool:
    """Return whether the stack is not known; a network that is not makes others as well."""
    return any(other.job.stack is not case.job.stack for other in case.others)


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


def _read_as(answer: Row | LeftOut, read_as: Mapping[str, Stack]) -> Row | LeftOut:
    """Return what has a price under the stack that its program was found to be closest to."""
    if answer.case is None:
        return answer
    cases = (answer.case, *answer.case.others)
    stack = read_as.get(_program(answer.case)) if _may_be_of_several_stacks(answer.case) else None
    own = next((case for case in cases if case.job.stack is stack), answer.case)
    return replace(answer, case=replace(own, others=()))


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
        return LeftOut(reason=f"step: {seconds.name.lower()}", case=case)
    return Row(case=case, measured_seconds=seconds)


def _wanted(answer: Row | LeftOut, *, device: str | None, stack: Stack | None) -> Row | LeftOut:
    if answer.case is None:
        return answer
    kind, own = answer.case.hardware.kinds[0].device, answer.case.job.stack
    if device not in {None, kind}:
        return LeftOut(reason="another device")
    return answer if stack in {None, own} else LeftOut(reason="another stack")
