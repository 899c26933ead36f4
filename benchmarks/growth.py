"""`python -m benchmarks.growth`: how planning time grows with devices and with layers.

It plans models on 8 to 65,536 devices and chains of 8 to 512 blocks, each in a warm process, and
with `--write` puts the table and the picture into docs/planning-speed.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.curves import Curve, Panel, Point, drawn
from benchmarks.machine import machine, machine_line
from benchmarks.page import PAGE, PICTURE, put
from benchmarks.random_models import alternating_of, repeated
from benchmarks.warm_process import WarmProcess
from planner.units import format_seconds

DEVICE_COUNTS = tuple(8 * 2**k for k in range(14))
LAYER_COUNTS = (8, 16, 32, 64, 128, 256, 512)
HUNG_AFTER_SECONDS = 30.0
QUICK_SECONDS = 3.0
REPEATS = 2
GPU = "h100-sxm5-80gb"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One model on more and more devices, or one cluster with more and more layers."""

    name: str
    along: str
    cases: tuple[tuple[int, dict[str, Any]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One point: seconds, whether it was proven, and how many configurations there were."""

    series: str
    along: str
    size: int
    seconds: float
    status: str
    gap_ratio: float | None
    configuration_count: int | None
    peak_resident_bytes: int


def all_series(seconds_limit: float) -> tuple[Series, ...]:
    """Return what is measured."""
    return (
        _over_devices("Llama-3-8B", "llama-3-8b", DEVICE_COUNTS, seconds_limit),
        _over_devices("Llama-3.1-405B", "llama-3.1-405b", DEVICE_COUNTS[6:], seconds_limit),
        _over_devices("DeepSeek-V3", "deepseek-v3", DEVICE_COUNTS[5:], seconds_limit),
        _over_layers("equal blocks", repeated, seconds_limit),
        _over_layers("two kinds in turns", alternating_of, seconds_limit),
    )


def _over_devices(name: str, model: str, counts: tuple[int, ...], seconds_limit: float) -> Series:
    return Series(
        name=name,
        along="devices",
        cases=tuple(
            (count, _case(model, count, batch=min(max(512, count), 16384), limit=seconds_limit))
            for count in counts
        ),
    )


def _over_layers(name: str, chain: Any, seconds_limit: float) -> Series:
    return Series(
        name=name,
        along="blocks",
        cases=tuple(
            (count, _case(chain(block_count=count), 512, batch=1024, limit=seconds_limit))
            for count in LAYER_COUNTS
        ),
    )


def _case(model: Any, device_count: int, *, batch: int, limit: float) -> dict[str, Any]:
    job = {"global_batch_size": batch, "sequence_length": 4096, "limits": {"solver_seconds": limit}}
    return {"model": model, "cluster": f"{device_count // 8}x8x{GPU}", "job": job}


def measured(series: Series, *, seconds_limit: float) -> Iterator[Measured]:
    """Yield the points of a series; quick ones are repeated, and their median counts."""
    limit = seconds_limit + HUNG_AFTER_SECONDS
    with WarmProcess("benchmarks.worker", seconds_limit=limit) as process:
        for size, case in series.cases:
            answers = [process.ask(case)]
            if answers[0]["seconds"] < QUICK_SECONDS:
                answers += [process.ask(case) for _ in range(REPEATS)]
            last = answers[-1]
            yield Measured(
                series=series.name,
                along=series.along,
                size=size,
                seconds=statistics.median(answer["seconds"] for answer in answers),
                status=last["status"],
                gap_ratio=last.get("gap_ratio"),
                configuration_count=last.get("configurations_total"),
                peak_resident_bytes=last.get("peak_resident_bytes", 0),
            )


def main() -> int:
    """Measure, print and perhaps write; return 0."""
    options = _options()
    facts = machine()
    if not options.json:
        print(machine_line(facts), flush=True)
    points: list[Measured] = []
    for series in all_series(options.seconds_limit):
        for point in measured(series, seconds_limit=options.seconds_limit):
            points.append(point)
            if not options.json:
                print(_line(point), flush=True)
    if options.json:
        print(json.dumps({"machine": facts, "points": [asdict(p) for p in points]}, indent=2))
    if options.write:
        put("growth", _table(points, facts))
        PICTURE.write_text(drawn([_panel(points, "devices"), _panel(points, "blocks")]))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--seconds-limit", type=float, default=20.0, help="the planner's own limit")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name} and its picture")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


def _line(point: Measured) -> str:
    gap = "" if point.gap_ratio is None else f"gap {point.gap_ratio:.2%}"
    return (
        f"{point.series:<20} {point.size:>6} {point.along:<8} {format_seconds(point.seconds):>9}  "
        f"{point.status:<10} {gap:<10} {point.configuration_count} configurations, "
        f"{point.peak_resident_bytes / 1e6:.0f} MB"
    )


def _table(points: list[Measured], facts: dict[str, Any]) -> Iterator[str]:
    yield f"`python -m benchmarks.growth`, {machine_line(facts)}."
    for along in ("devices", "blocks"):
        names = list(dict.fromkeys(p.series for p in points if p.along == along))
        found = {(p.series, p.size): p for p in points if p.along == along}
        yield ""
        yield f"| {along} | {' | '.join(names)} |"
        yield "|---" * (len(names) + 1) + "|"
        for size in sorted({p.size for p in points if p.along == along}):
            cells = [_cell(found.get((name, size))) for name in names]
            yield f"| {size:,} | {' | '.join(cells)} |"


def _cell(point: Measured | None) -> str:
    if point is None:
        return ""
    if point.status == "proven":
        return format_seconds(point.seconds)
    shown = point.status if point.gap_ratio is None else f"gap {point.gap_ratio:.2%}"
    return f"{format_seconds(point.seconds)}, {shown}"


def _panel(points: list[Measured], along: str) -> Panel:
    names = list(dict.fromkeys(p.series for p in points if p.along == along))
    return Panel(
        title=f"Seconds to plan, by {along}",
        along=along,
        curves=tuple(
            Curve(
                name=name,
                points=tuple(
                    Point(x=p.size, y=p.seconds, solid=p.status in {"proven", "infeasible"})
                    for p in points
                    if p.along == along and p.series == name
                ),
            )
            for name in names
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
