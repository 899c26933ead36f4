"""The trade-off of step, memory and cost as a scatter: lower and further left is better."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, log10
from typing import Any

from api.dashboard.charts import Figure, panel, time_scale
from api.dashboard.quantities import memory, money, seconds
from planner.units import GIB

_ROOM = 0.18
_GROUND_RATIO = 0.15  # of the highest spot: below it there is no room for a label
_LOGARITHMIC_FROM = 5.0  # longest over shortest step


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """One plan of the scatter: `label` stands beside it, `words` are told when it is pointed at.

    Where simpler plans count as better too, it says how many techniques it has.
    """

    label: str
    words: str
    step_seconds: float
    peak_memory_bytes: float
    cost_per_million_tokens: float | None
    technique_count: int = 0


def scatter(spots: Sequence[Spot], *, capacities_bytes: Collection[float] = ()) -> Figure:
    """Return step against peak memory, with a line at each capacity.

    Spots that no other beats in step, memory and cost at once are filled.
    """
    scale, unit = time_scale(max(spot.step_seconds for spot in spots))
    kept = undominated(spots)
    ordered = sorted(spots, key=lambda spot: spot.step_seconds)
    beaten = [spot for spot in spots if spot not in kept]
    data = [
        _trace("Not beaten", kept, ordered=ordered, scale=scale, hollow=False),
        _trace("Beaten", beaten, ordered=ordered, scale=scale, hollow=True),
    ]
    steps = [spot.step_seconds / scale for spot in spots]
    peaks = [spot.peak_memory_bytes / GIB for spot in spots]
    layout = panel(x_title=f"Step ({unit})", y_title="Peak memory of a device (GiB)", height=340)
    layout["xaxis"] |= _step_axis(steps)
    layout["yaxis"]["range"] = _range([*peaks, *(each / GIB for each in capacities_bytes)])
    layout["shapes"] = [_capacity_line(each) for each in capacities_bytes]
    return {"data": [trace for trace in data if trace["x"]], "layout": layout}


def undominated(spots: Sequence[Spot]) -> tuple[Spot, ...]:
    """Return the spots that no other is as good as in everything and better in something."""
    return tuple(
        spot for spot in spots if not any(_beats(other, spot) for other in spots if other != spot)
    )


def _beats(one: Spot, other: Spot) -> bool:
    mine, theirs = _values(one), _values(other)
    return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))


def _values(spot: Spot) -> tuple[float, ...]:
    cost = spot.cost_per_million_tokens or 0.0
    return spot.step_seconds, spot.peak_memory_bytes, cost, spot.technique_count


def _trace(
    name: str, spots: Sequence[Spot], *, ordered: Sequence[Spot], scale: float, hollow: bool
) -> dict[str, Any]:
    """Return the spots with their labels, which stand above and below in turn: none hides another.

    `ordered` are all spots of the figure by their steps.
    """
    ground = _GROUND_RATIO * max(spot.peak_memory_bytes for spot in ordered)
    below = [spot for spot in ordered[1::2] if spot.peak_memory_bytes > ground]
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": name,
        "x": [spot.step_seconds / scale for spot in spots],
        "y": [spot.peak_memory_bytes / GIB for spot in spots],
        "text": [spot.label for spot in spots],
        "textposition": ["bottom center" if spot in below else "top center" for spot in spots],
        "hovertext": [_words(spot) for spot in spots],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": {
            "size": 13,
            "symbol": "circle-open" if hollow else "circle",
            "color": "var(--muted)" if hollow else "var(--accent)",
            "line": {"width": 2, "color": "var(--muted)" if hollow else "var(--accent)"},
        },
    }


def _words(spot: Spot) -> str:
    cost = spot.cost_per_million_tokens
    money_words = "" if cost is None else f", {money(cost)} per million tokens"
    return (
        f"{spot.label}: {spot.words}<br>{seconds(spot.step_seconds)} a step, "
        f"{memory(spot.peak_memory_bytes)}{money_words}"
    )


def _step_axis(steps: Sequence[float]) -> dict[str, Any]:
    """Return the range of the steps, in logarithms where one is many times as long as another."""
    least, most = min(steps), max(steps)
    if least <= 0.0 or most < _LOGARITHMIC_FROM * least:
        return {"range": _range(steps)}
    ends = _range([log10(least), log10(most)], lowest=-inf)
    decades = range(floor(ends[0]), ceil(ends[1]) + 1)
    ticks = [digit * 10.0**decade for decade in decades for digit in (1, 2, 5)]
    return {
        "type": "log",
        "range": ends,
        "tickvals": ticks,
        "ticktext": [f"{tick:g}" for tick in ticks],
    }


def _range(values: Sequence[float], *, lowest: float = 0.0) -> list[float]:
    least, most = min(values), max(values)
    room = _ROOM * ((most - least) or most or 1.0)
    return [max(least - room, lowest), most + room]


def _capacity_line(capacity_bytes: float) -> dict[str, Any]:
    height = capacity_bytes / GIB
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": height,
        "y1": height,
        "line": {"color": "var(--capacity)", "width": 2, "dash": "dash"},
    }
