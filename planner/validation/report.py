"""Report: all runs of a file priced, compared, grouped and counted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum

from planner.schema.calibration import CalibrationProfile
from planner.schema.measured_run import MeasuredRun
from planner.schema.validation import Grouping, GroupSummary, Tally, ValidationReport
from planner.validation.case import case_of
from planner.validation.comparison import Comparison, compare
from planner.validation.measurement import time_is_from_flop
from planner.validation.reasons import Assumption, SetAside, Unpriced
from planner.validation.subsets import KEYS, SUBSETS
from planner.validation.summary import group_summary
from planner.version import planner_version

_EXAMPLE_LIMIT = 3
_ALIKE = 0.8  # of spellings


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpricedRun:
    """A run without a price."""

    run: MeasuredRun
    why: Unpriced


def compared(
    runs: Iterable[MeasuredRun], calibration: CalibrationProfile | None = None
) -> Iterator[Comparison | UnpricedRun]:
    """Yield what becomes of each run, in order, priced with the scalars of `calibration`."""
    for run in runs:
        try:
            yield compare(case_of(run, calibration))
        except Unpriced as why:
            yield UnpricedRun(run=run, why=why)


def validation_report(
    answers: Iterable[Comparison | UnpricedRun], *, by: Sequence[str] = ("family",)
) -> ValidationReport:
    """Return the report on the answers, grouped by each of the keys `by` as well as by subset."""
    priced: list[Comparison] = []
    unpriced: list[UnpricedRun] = []
    for answer in answers:
        if isinstance(answer, Comparison):
            priced.append(answer)
        else:
            unpriced.append(answer)
    return ValidationReport(
        run_count=len(priced) + len(unpriced),
        priced_count=len(priced),
        unpriced=_unpriced_tallies(unpriced),
        set_aside=_set_aside_tallies(priced),
        assumptions=_assumption_tallies(priced),
        illegal=_illegal_tallies(priced),
        unread=unread_tallies([*(one.case.run for one in priced), *(one.run for one in unpriced)]),
        subsets=tuple(_subset(name, chosen, priced) for name, chosen in SUBSETS.items()),
        groupings=tuple(Grouping(by=key, groups=_groups(key, priced)) for key in by),
        planner_version=planner_version(),
    )


def _subset(
    name: str, chosen: Callable[[Comparison], bool], priced: Sequence[Comparison]
) -> GroupSummary:
    return group_summary(name, [comparison for comparison in priced if chosen(comparison)])


def _groups(key: str, priced: Sequence[Comparison]) -> tuple[GroupSummary, ...]:
    groups: dict[str, list[Comparison]] = defaultdict(list)
    for comparison in priced:
        groups[KEYS[key](comparison)].append(comparison)
    return tuple(group_summary(name, groups[name]) for name in sorted(groups))


@dataclass(slots=True, kw_only=True)
class _Count:
    """Runs of one kind, by family, with a few words on some."""

    families: Counter[str] = field(default_factory=Counter)
    examples: dict[str, None] = field(default_factory=dict)

    def add(self, run: MeasuredRun, example: str | None = None) -> None:
        self.families[run.family_name] += 1
        if example is not None and len(self.examples) < _EXAMPLE_LIMIT:
            self.examples[example] = None


class _Tallies:
    """Counts by name, most frequent first."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], _Count] = defaultdict(_Count)

    def add(
        self, name: str, description: str, run: MeasuredRun, example: str | None = None
    ) -> None:
        self._counts[name, description].add(run, example)

    def tallies(self) -> tuple[Tally, ...]:
        found = [
            Tally(
                name=name,
                description=description,
                run_count=count.families.total(),
                families=dict(sorted(count.families.items())),
                examples=tuple(count.examples),
            )
            for (name, description), count in self._counts.items()
        ]
        return tuple(sorted(found, key=lambda tally: (-tally.run_count, tally.name)))


def _unpriced_tallies(unpriced: Sequence[UnpricedRun]) -> tuple[Tally, ...]:
    tallies = _Tallies()
    for answer in unpriced:
        reason = answer.why.reason
        tallies.add(_name(reason), reason.value, answer.run, answer.why.detail[:200])
    return tallies.tallies()


def _set_aside_tallies(priced: Sequence[Comparison]) -> tuple[Tally, ...]:
    tallies = _Tallies()
    for comparison in priced:
        aspects = (
            ("step", comparison.step),
            ("memory", comparison.memory),
            ("fit", comparison.fit),
        )
        for aspect, answer in aspects:
            if isinstance(answer, SetAside):
                tallies.add(f"{aspect}: {_name(answer)}", answer.value, comparison.case.run)
    return tallies.tallies()


def _assumption_tallies(priced: Sequence[Comparison]) -> tuple[Tally, ...]:
    tallies = _Tallies()
    for comparison in priced:
        made = list(comparison.case.assumptions)
        if time_is_from_flop(comparison.case):
            made.append(Assumption.TIME_FROM_FLOP)
        for assumption in made:
            tallies.add(_name(assumption), assumption.value, comparison.case.run)
    return tallies.tallies()


def _illegal_tallies(priced: Sequence[Comparison]) -> tuple[Tally, ...]:
    tallies = _Tallies()
    for comparison in priced:
        for name in comparison.case.breaches:
            tallies.add(name, f"breaks a rule on {name}", comparison.case.run)
    return tallies.tallies()


def unread_tallies(runs: Iterable[MeasuredRun]) -> tuple[Tally, ...]:
    """Return how many runs have which keys that the format does not have.

    The example is the key that may have been meant: one that is spelt alike, and that the run does
    not state.
    """
    tallies = _Tallies()
    for run in runs:
        for name in run.unread:
            tallies.add(name, name, run, _meant(name, run))
    return tallies.tallies()


def _meant(name: str, run: MeasuredRun) -> str | None:
    near = get_close_matches(name[:200], MeasuredRun.model_fields, n=1, cutoff=_ALIKE)
    return near[0] if near and getattr(run, near[0]) is None else None


def _name(member: StrEnum) -> str:
    return member.name.lower()
