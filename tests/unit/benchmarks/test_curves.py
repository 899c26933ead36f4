"""Curves: what is drawn is well-formed, and lies where the numbers say."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from benchmarks.curves import Curve, Panel, Point, drawn

SVG = "{http://www.w3.org/2000/svg}"


def _panel(*points: Point, name: str = "one") -> Panel:
    return Panel(title="Seconds", along="devices", curves=(Curve(name=name, points=points),))


def _circles(document: str) -> list[ET.Element]:
    root = ET.fromstring(document)  # noqa: S314 - our own text
    return [circle for circle in root.iter(f"{SVG}circle") if circle.get("stroke")]


def test_more_devices_lie_further_right_and_more_seconds_higher() -> None:
    fast, slow = Point(x=8, y=0.1, solid=True), Point(x=64, y=1.0, solid=True)
    left, right = _circles(drawn([_panel(fast, slow)]))
    assert float(left.get("cx", 0)) < float(right.get("cx", 0))
    assert float(left.get("cy", 0)) > float(right.get("cy", 0))


def test_a_point_that_missed_its_goal_is_hollow() -> None:
    proven, open_ = Point(x=8, y=0.1, solid=True), Point(x=16, y=0.1, solid=False)
    first, second = _circles(drawn([_panel(proven, open_)]))
    assert first.get("fill") == first.get("stroke")
    assert second.get("fill") != second.get("stroke")


def test_names_are_escaped() -> None:
    document = drawn([_panel(Point(x=8, y=0.1, solid=True), name="a < b & c")])
    root = ET.fromstring(document)  # noqa: S314 - our own text
    assert "a < b & c" in [text.text for text in root.iter(f"{SVG}text")]


def test_panels_stand_side_by_side() -> None:
    panel = _panel(Point(x=8, y=0.1, solid=True))
    one, two = (ET.fromstring(drawn([panel] * n)) for n in (1, 2))  # noqa: S314
    assert int(two.get("width", 0)) == 2 * int(one.get("width", 0))
