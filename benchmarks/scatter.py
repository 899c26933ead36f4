"""Scatter: predicted over measured, a small panel for each family, drawn as SVG by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import ceil, floor, log10

COLUMNS = 5
PANEL, GAP, HEAD, FOOT = 150, 34, 40, 34
WITHIN_RATIO = 1.2
INK, FAINT, PAPER, CLOSE, FAR = "#222222", "#dddddd", "#ffffff", "#0072b2", "#d55e00"

Points = Sequence[tuple[float, float]]


def scattered(families: Mapping[str, Points], *, unit: str) -> str:
    """Return a panel of (measured, predicted) for each family; both are above 0 and in `unit`.

    Points within a fifth of the diagonal are blue, others orange.
    """
    rows = ceil(len(families) / COLUMNS)
    width, height = COLUMNS * (PANEL + GAP) + GAP, rows * (PANEL + HEAD + FOOT) + 24
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    style = f'font-family="sans-serif" font-size="11" fill="{INK}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>',
        f'<rect width="{width}" height="{height}" fill="{PAPER}"/>',
    ]
    for place, (name, points) in enumerate(families.items()):
        x = GAP + (place % COLUMNS) * (PANEL + GAP)
        y = HEAD + (place // COLUMNS) * (PANEL + HEAD + FOOT)
        parts.append(f'<g transform="translate({x} {y})">')
        parts.extend(_panel(name, points))
        parts.append("</g>")
    parts.append(_text(GAP, height - 10, f"across: measured, up: predicted ({unit}); logarithmic"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(name: str, points: Points) -> Iterator[str]:
    values = [value for point in points for value in point]
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    high = max(high, low + 1)

    def along(value: float) -> float:
        return PANEL * (log10(value) - low) / (high - low)

    yield f'<rect width="{PANEL}" height="{PANEL}" fill="none" stroke="{FAINT}"/>'
    yield f'<line x1="0" y1="{PANEL}" x2="{PANEL}" y2="0" stroke="{FAINT}" stroke-width="2"/>'
    yield _text(0, -18, name, weight="bold")
    yield _text(0, -5, f"{len(points)} runs")
    for measured, predicted in points:
        far = max(predicted / measured, measured / predicted) > WITHIN_RATIO
        yield (
            f'<circle cx="{along(measured):.1f}" cy="{PANEL - along(predicted):.1f}" r="2.5" '
            f'fill="{FAR if far else CLOSE}" fill-opacity="0.6"/>'
        )
    for power in (low, high):
        x = along(10.0**power)
        anchor = "start" if power == low else "end"
        yield _text(x, PANEL + 14, f"{10.0**power:g}", anchor=anchor)


def _text(x: float, y: float, words: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">'
        f"{escape(words)}</text>"
    )
