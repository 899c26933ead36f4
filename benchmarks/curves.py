"""Curves: panels of lines over two logarithmic axes, drawn as SVG by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log2, log10

WIDTH, HEIGHT = 460, 340
LEFT, RIGHT, TOP, BOTTOM = 60, 16, 66, 48
COLOURS = ("#0072b2", "#d55e00", "#009e73")
INK, FAINT, PAPER = "#222222", "#dddddd", "#ffffff"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A measurement; one that is not solid missed its goal and is drawn hollow."""

    x: float
    y: float
    solid: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A named line."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Curves over the same axes: `along` in powers of two, seconds in powers of ten."""

    title: str
    along: str
    curves: tuple[Curve, ...]


def drawn(panels: Sequence[Panel]) -> str:
    """Return the panels side by side as an SVG document."""
    width = WIDTH * len(panels)
    size = f'viewBox="0 0 {width} {HEIGHT}" width="{width}" height="{HEIGHT}"'
    style = f'font-family="sans-serif" font-size="12" fill="{INK}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>',
        f'<rect width="{width}" height="{HEIGHT}" fill="{PAPER}"/>',
    ]
    for place, panel in enumerate(panels):
        parts.append(f'<g transform="translate({WIDTH * place} 0)">')
        parts.extend(_panel(panel))
        parts.append("</g>")
    return "\n".join([*parts, "</svg>"]) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    """Where numbers lie on the paper."""

    x_powers: tuple[int, int]
    y_powers: tuple[int, int]

    def x(self, value: float) -> float:
        """Return the place of a size, in powers of two."""
        first, last = self.x_powers
        return LEFT + (WIDTH - LEFT - RIGHT) * (log2(value) - first) / max(last - first, 1)

    def y(self, seconds: float) -> float:
        """Return the place of seconds, in powers of ten."""
        first, last = self.y_powers
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (log10(seconds) - first) / (last - first)


def _panel(panel: Panel) -> Iterator[str]:
    points = [point for curve in panel.curves for point in curve.points]
    scale = _Scale(
        x_powers=(
            floor(log2(min(point.x for point in points))),
            ceil(log2(max(point.x for point in points))),
        ),
        y_powers=(
            min(floor(log10(min(point.y for point in points))), -2),
            max(ceil(log10(max(point.y for point in points))), 1),
        ),
    )
    yield _text(LEFT, 20, panel.title, weight="bold")
    yield from _axes(scale, panel.along)
    for place, curve in enumerate(panel.curves):
        yield from _curve(curve, scale, COLOURS[place % len(COLOURS)])
        yield from _legend(curve.name, place, COLOURS[place % len(COLOURS)])


def _axes(scale: _Scale, along: str) -> Iterator[str]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    for power in range(scale.y_powers[0], scale.y_powers[1] + 1):
        y = scale.y(10.0**power)
        yield f'<line x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="{FAINT}"/>'
        yield _text(LEFT - 8, y + 4, _seconds(power), anchor="end")
    first, last = scale.x_powers
    step = 2 if last - first > 7 else 1
    for power in range(first, last + 1, step):
        x = scale.x(2.0**power)
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}" stroke="{FAINT}"/>'
        yield _text(x, bottom + 16, f"{2**power:,}", anchor="middle")
    yield _text((LEFT + right) / 2, HEIGHT - 10, along, anchor="middle")


def _seconds(power: int) -> str:
    return f"{10**power} s" if power >= 0 else f"{10 ** (power + 3)} ms"


def _curve(curve: Curve, scale: _Scale, colour: str) -> Iterator[str]:
    places = [(scale.x(point.x), scale.y(point.y), point.solid) for point in curve.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in places)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for x, y, solid in places:
        fill = colour if solid else PAPER
        yield (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{colour}" '
            'stroke-width="2"/>'
        )


def _legend(name: str, place: int, colour: str) -> Iterator[str]:
    x, y = LEFT + 130 * place, 42
    yield f'<circle cx="{x + 4}" cy="{y - 4}" r="4" fill="{colour}"/>'
    yield _text(x + 14, y, name)


def _text(x: float, y: float, words: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">'
        f"{escape(words)}</text>"
    )
