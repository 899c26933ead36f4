"""Charts: plotly figures as plain JSON values, without a colour of their own.

A figure holds `data` and `layout` as plotly.js takes them. Colours are references such as
`var(--cause-compute)`, which static/charts.js resolves for the light or dark scheme; the legend
stands in the page, once for all charts of a kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from api.dashboard.palette import MEMORY_PARTS, STEP_PARTS, Part, memory_bytes, step_seconds
from planner.schema.plan import StagePrediction, StepBreakdown
from planner.units import GIB, format_bytes, format_seconds

Figure = dict[str, Any]
MINUS = "\N{MINUS SIGN}"

_ROW_PIXELS = 34
_LEAST_ROW_PIXELS = 9
_ROWS_PIXELS = 560  # of all rows together, as long as none is narrower than the least
_LABEL_PIXELS = 18
_AXIS_PIXELS = 72
_HEADROOM = 1.04
_LABEL_ROOM = 1.25
_BESIDE = {
    "xanchor": "left",
    "xshift": 4,
    "showarrow": False,
    "align": "left",
    "font": {"size": 12, "color": "var(--muted)"},
}
_OUTLINED_BARS = 100  # of a row: on a narrow screen one more has less than 3 pixels
_OUTLINE = {"color": "var(--surface)", "width": 1}


def step_waterfall(breakdown: StepBreakdown) -> Figure:
    """Return one bar per cause, each starting where the last one ended, and the whole step."""
    scale, unit = time_scale(breakdown.total_seconds())
    found = [(part, seconds) for part, seconds in step_seconds(breakdown) if seconds > 0]
    total = breakdown.total_seconds()
    labels = [part.label for part, _ in found] + ["Step"]
    lengths = [seconds for _, seconds in found] + [total]
    starts = [sum(lengths[:index]) for index in range(len(found))] + [0.0]
    shares = [f"{seconds / total:.1%}" for seconds in lengths] if total else ["" for _ in lengths]
    bars = _bars(
        y=labels,
        x=[seconds / scale for seconds in lengths],
        base=[seconds / scale for seconds in starts],
        colour=[part.colour for part, _ in found] + ["var(--text)"],
    )
    bars["text"] = [
        f"{format_seconds(seconds)} · {share}"
        for seconds, share in zip(lengths, shares, strict=True)
    ]
    bars["textposition"] = "none"
    bars["hovertemplate"] = "%{y}: %{text}<extra></extra>"
    end = total * _LABEL_ROOM / scale
    layout = _layout(row_count=len(labels), title=f"Time ({unit})", longest=end)
    layout["annotations"] = [
        {"x": (start + length) / scale, "y": label, "text": text} | _BESIDE
        for label, text, start, length in zip(labels, bars["text"], starts, lengths, strict=True)
    ]
    return {"data": [bars], "layout": layout}


def step_bars(breakdowns: Sequence[tuple[str, StepBreakdown]]) -> Figure:
    """Return one stacked bar per named plan, all on the scale of the longest step."""
    longest = max((breakdown.total_seconds() for _, breakdown in breakdowns), default=0.0)
    scale, unit = time_scale(longest)
    names = [name for name, _ in breakdowns]
    data = []
    for part in STEP_PARTS:
        seconds = [float(getattr(breakdown, part.name)) for _, breakdown in breakdowns]
        if any(seconds):
            bars = _bars(y=names, x=[value / scale for value in seconds], colour=part.colour)
            bars["name"] = part.label
            bars["text"] = [format_seconds(value) for value in seconds]
            bars["textposition"] = "none"
            bars["hovertemplate"] = f"%{{y}}: {part.label} %{{text}}<extra></extra>"
            data.append(bars)
    layout = _layout(
        row_count=len(names),
        title=f"Time of one step ({unit})",
        longest=longest * _HEADROOM / scale,
    )
    return {"data": data, "layout": layout}


def delta_bars(changes: Sequence[tuple[Part, float]], *, total: float) -> Figure:
    """Return a bar per cause from zero to its change, and one for the change of the whole step."""
    scale, unit = time_scale(max((abs(each) for _, each in changes), default=abs(total)))
    labels = [part.label for part, _ in changes] + ["Step"]
    lengths = [seconds for _, seconds in changes] + [total]
    bars = _bars(
        y=labels,
        x=[seconds / scale for seconds in lengths],
        colour=[part.colour for part, _ in changes] + ["var(--text)"],
    )
    bars["text"] = [
        f"{'+' if seconds > 0 else MINUS}{format_seconds(abs(seconds))}" for seconds in lengths
    ]
    bars["textposition"] = "none"
    bars["hovertemplate"] = "%{y}: %{text}<extra></extra>"
    least, most = (end(lengths) / scale for end in (min, max))
    layout = _layout(row_count=len(labels), title=f"Change of the step ({unit})", longest=1.0)
    room = max(most, 0.0) - min(least, 0.0) or 1.0
    layout["xaxis"]["range"] = [min(least, 0.0) - 0.28 * room, max(most, 0.0) + 0.28 * room]
    layout["xaxis"]["zerolinewidth"] = 2
    layout["annotations"] = [
        {"x": length / scale, "y": label, "text": text} | _BESIDE | _side(length)
        for label, text, length in zip(labels, bars["text"], lengths, strict=True)
    ]
    return {"data": [bars], "layout": layout}


def _side(length: float) -> dict[str, Any]:
    return {} if length >= 0 else {"xanchor": "right", "xshift": -4, "align": "right"}


def memory_bars(
    stages: Sequence[StagePrediction], *, ceiling_bytes: float | None = None, place: str = "stage"
) -> Figure:
    """Return one stacked bar per stage, named after its `place`, with a line at its capacity.

    `ceiling_bytes` fixes the end of the axis, so that the charts of several plans compare.
    """
    names = [f"{place.capitalize()} {stage.stage}" for stage in stages]
    data = []
    for part in MEMORY_PARTS:
        amounts = [dict(memory_bytes(stage.memory_bytes))[part] for stage in stages]
        if any(amounts):
            bars = _bars(y=names, x=[amount / GIB for amount in amounts], colour=part.colour)
            bars["name"] = part.label
            bars["text"] = [format_bytes(amount) for amount in amounts]
            bars["textposition"] = "none"
            bars["hovertemplate"] = f"%{{y}}: {part.label} %{{text}}<extra></extra>"
            data.append(bars)
    end = (ceiling_bytes or memory_ceiling_bytes(stages)) * _HEADROOM / GIB
    layout = _layout(row_count=len(names), title="Memory per device (GiB)", longest=end)
    layout["shapes"] = [
        {
            "type": "line",
            "x0": stage.capacity_bytes / GIB,
            "x1": stage.capacity_bytes / GIB,
            "y0": index - 0.5,
            "y1": index + 0.5,
            "line": {"color": "var(--capacity)", "width": 2, "dash": "dash"},
        }
        for index, stage in enumerate(stages)
    ]
    return {"data": data, "layout": layout}


def timeline_bars(
    rows: Mapping[Part, Sequence[Mapping[str, Any]]],
    *,
    names: Sequence[str],
    end: float,
    unit: str,
) -> Figure:
    """Return a row per stage with a bar for each action, from its start (`base`) on, by `rows`.

    Where bars are narrow they have no outline, which would hide them.
    """
    outline_width = 0.5 if sum(map(len, rows.values())) <= _OUTLINED_BARS * len(names) else 0
    data = []
    for part, found in rows.items():
        columns = {key: [row[key] for row in found] for key in ("y", "x", "base", "text")}
        bars = _bars(y=columns["y"], x=columns["x"], base=columns["base"], colour=part.colour)
        bars |= {"name": part.label, "text": columns["text"], "textposition": "none"}
        bars["marker"]["line"] = {"color": "var(--surface)", "width": outline_width}
        bars["hovertemplate"] = f"%{{y}}: {part.label}, %{{text}}<extra></extra>"
        data.append(bars)
    layout = _layout(row_count=len(names), title=f"Time ({unit})", longest=end * _HEADROOM)
    layout["barmode"], layout["bargap"] = "overlay", 0.15
    layout["yaxis"] |= {"categoryorder": "array", "categoryarray": list(names)}
    return {"data": data, "layout": layout}


def interval_marks(
    x: Sequence[Any],
    middles: Sequence[float],
    ends: Sequence[tuple[float, float]],
    *,
    words: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return predictions as dashes with whiskers to both `ends`; `words` tell of each."""
    marks: dict[str, Any] = {
        "type": "scatter",
        "mode": "markers",
        "name": "predicted",
        "x": list(x),
        "y": list(middles),
        "marker": {"size": 9, "symbol": "line-ew-open", "color": "var(--muted)"},
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [high - middle for middle, (_, high) in zip(middles, ends, strict=True)],
            "arrayminus": [middle - low for middle, (low, _) in zip(middles, ends, strict=True)],
            "color": "var(--muted)",
            "thickness": 2,
            "width": 6,
        },
    }
    if words is None:
        return {**marks, "hoverinfo": "skip"}
    return {**marks, "hovertext": list(words), "hovertemplate": "%{hovertext}<extra></extra>"}


def panel(*, x_title: str, y_title: str, height: int) -> dict[str, Any]:
    """Return the layout of a chart with two quantities."""
    layout = _layout(row_count=0, title=x_title, longest=1.0)
    axis = {name: value for name, value in layout["xaxis"].items() if name != "range"}
    title = {"text": y_title, "standoff": 8, "font": {"size": 13, "color": "var(--muted)"}}
    return layout | {
        "height": height,
        "margin": {"l": 56, "r": 16, "t": 12, "b": 48},
        "xaxis": dict(axis),
        "yaxis": {**axis, "title": title, "automargin": True},
    }


def memory_ceiling_bytes(stages: Sequence[StagePrediction]) -> float:
    """Return the most that any stage needs or has."""
    return max(max(stage.peak_memory_bytes, stage.capacity_bytes) for stage in stages)


def time_scale(seconds: float) -> tuple[float, str]:
    """Return the unit in which `seconds` read well: its length in seconds, and its name."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale:
            return scale, unit
    return 1e-6, "µs"


def _bars(
    *, y: list[str], x: list[float], colour: str | list[str], base: list[float] | None = None
) -> dict[str, Any]:
    bars: dict[str, Any] = {
        "type": "bar",
        "orientation": "h",
        "y": y,
        "x": x,
        "marker": {"color": colour, "line": _OUTLINE},
    }
    return bars if base is None else {**bars, "base": base}


def _layout(*, row_count: int, title: str, longest: float) -> dict[str, Any]:
    """Return a layout of one row per bar, the first on top, from nothing to `longest`.

    Many rows are narrow, and only some of them have a label.
    """
    row = min(_ROW_PIXELS, max(_ROWS_PIXELS // max(row_count, 1), _LEAST_ROW_PIXELS))
    return {
        "barmode": "stack",
        "bargap": 0.35,
        "height": _AXIS_PIXELS + row * row_count,
        "margin": {"l": 8, "r": 16, "t": 8, "b": 48},
        "showlegend": False,
        "hovermode": "closest",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": "var(--text)", "family": "var(--font)", "size": 13},
        "hoverlabel": {
            "bgcolor": "var(--surface)",
            "bordercolor": "var(--border-strong)",
            "font": {"color": "var(--text)"},
        },
        "xaxis": {
            "title": {"text": title, "standoff": 8, "font": {"size": 13, "color": "var(--muted)"}},
            "range": [0, longest or 1],
            "gridcolor": "var(--border)",
            "zerolinecolor": "var(--border-strong)",
            "fixedrange": True,
        },
        "yaxis": {
            "type": "category",
            "autorange": "reversed",
            "automargin": True,
            "dtick": -(-_LABEL_PIXELS // row),
            "ticksuffix": "  ",
            "fixedrange": True,
        },
    }
