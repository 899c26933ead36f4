"""Quantities as readers see them: always with a unit, and "none" spelled out."""

from __future__ import annotations

from datetime import UTC, datetime

from planner.answers.chance_words import fit_words, fitting_words
from planner.answers.comparison import Unit
from planner.answers.objective_words import proof_words, rival_place, value_words
from planner.schema.job import Objective
from planner.units import GIB, format_bytes, format_count, format_seconds

ABSENT = "n/a"
MINUS = "\N{MINUS SIGN}"
_EQUAL_RATIO = 5e-4
_FACTOR_LEAST = 10.0


def seconds(value: float | None) -> str:
    """Return a duration: `47.7 s`."""
    return ABSENT if value is None else format_seconds(float(f"{value:.3g}"))


def exact_seconds(value: float | None) -> str:
    """Return a duration to four digits: `606.2 ms`."""
    return ABSENT if value is None else format_seconds(value)


def seconds_between(least: float, most: float) -> str:
    """Return an interval of durations, the unit once where both have it: `26.1–43 s`."""
    low, high = seconds(least), seconds(most)
    number, unit = low.rsplit(" ", 1)
    return f"{number if high.endswith(f' {unit}') else low}\N{EN DASH}{high}"


def memory(value: float | None) -> str:
    """Return bytes in binary units: `74.87 GiB`."""
    return ABSENT if value is None else format_bytes(value)


def gib(value: float) -> str:
    """Return bytes as a bare number of GiB, for a column that says so: `74.87`."""
    return f"{value / GIB:,.2f}"


def signed_seconds(value: float) -> str:
    """Return a change of a duration: `+1.64 s`, `−57.5 ms`."""
    return f"{'+' if value > 0 else MINUS}{seconds(abs(value))}"


def signed_memory(value: float) -> str:
    """Return a change of memory: `+8.8 GiB`."""
    return f"{'+' if value > 0 else MINUS}{format_bytes(abs(value))}"


def percent(ratio: float | None) -> str:
    """Return a ratio as a percentage: `53.7%`."""
    return ABSENT if ratio is None else f"{ratio:.1%}"


def gap(ratio: float | None) -> str:
    """Return an optimality gap, which is often small: `0%`, `0.013%`, `100%`."""
    return ABSENT if ratio is None else f"{ratio * 100:.3g}%"


def change(ratio: float) -> str:
    """Return a relative change with its sign, a large one as a factor: `+7.0%`, `±0%`, `×1,306`."""
    if abs(ratio) < _EQUAL_RATIO:
        return "±0%"
    if ratio + 1.0 >= _FACTOR_LEAST:
        return f"\N{MULTIPLICATION SIGN}{ratio + 1.0:,.0f}"
    return f"{'+' if ratio > 0 else MINUS}{abs(ratio):.1%}"


def rate(tokens_per_second: float | None) -> str:
    """Return a rate per device: `11,004 tokens/s`."""
    return ABSENT if tokens_per_second is None else f"{grouped(tokens_per_second)} tokens/s"


def grouped(value: float | None) -> str:
    """Return a number with its thousands apart: `11,004`, `2.56`."""
    if value is None:
        return ABSENT
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def duration(seconds: float) -> str:
    """Return how long something goes on, as people say it: `90 s`, `12 min`, `4 h 37 min`."""
    minutes = round(seconds / 60.0)
    if minutes < 2:
        return f"{seconds:.0f} s"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours else f"{minutes} min"


def money(dollars: float | None) -> str:
    """Return a price: `$0.0757`, `$5.60`, `$3,327`."""
    if dollars is None:
        return ABSENT
    return f"${dollars:,.3g}" if dollars < 1 else f"${dollars:,.{2 if dollars < 1000 else 0}f}"


def large(count: float) -> str:
    """Return a count with a decimal prefix: `8.03 G`."""
    return format_count(float(f"{count:.3g}"))


def day(when: datetime) -> str:
    """Return a day in UTC: `2026-11-21`."""
    return f"{_in_utc(when):%Y-%m-%d}"


def clock(when: datetime) -> str:
    """Return a time of day: `06:03 UTC`."""
    return f"{_in_utc(when):%H:%M} UTC"


def exact_clock(when: datetime) -> str:
    """Return a time of day to the second: `06:03:21 UTC`."""
    return f"{_in_utc(when):%H:%M:%S} UTC"


def machine_moment(when: datetime) -> str:
    """Return a moment for the `datetime` attribute."""
    return _in_utc(when).isoformat(timespec="seconds")


def words(name: str) -> str:
    """Return a field's name as words: `device memory`."""
    return name.replace("_", " ")


def in_unit(value: object, unit: Unit | None) -> str:
    """Return a compared value with its unit; a truth value in words."""
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and unit is not None:
        return _FORMATS[unit](value)
    return str(value)


_FORMATS = {
    "seconds": exact_seconds,
    "bytes": format_bytes,
    "ratio": percent,
    "tokens_per_second": rate,
    "currency": money,
}


def objective(value: float, of: Objective) -> str:
    """Return what a plan has of its objective, with the unit."""
    return value_words(of, value)


FILTERS = {
    "seconds": seconds,
    "exact_seconds": exact_seconds,
    "seconds_between": seconds_between,
    "fit": fit_words,
    "fitting": fitting_words,
    "memory": memory,
    "gib": gib,
    "percent": percent,
    "gap": gap,
    "change": change,
    "signed_seconds": signed_seconds,
    "rate": rate,
    "grouped": grouped,
    "money": money,
    "large": large,
    "day": day,
    "clock": clock,
    "exact_clock": exact_clock,
    "machine_moment": machine_moment,
    "words": words,
    "objective": objective,
    "proof": proof_words,
    "rival_place": rival_place,
}


def _in_utc(when: datetime) -> datetime:
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
