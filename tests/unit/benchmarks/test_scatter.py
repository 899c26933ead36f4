"""The picture of predicted against measured has a panel a family and a dot a run."""

from __future__ import annotations

import re
from html import unescape

from benchmarks.scatter import CLOSE, FAR, PANEL, scattered

CIRCLE = re.compile(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="2.5" fill="(#\w+)"')

WORDS = re.compile(r">([^<>]+)</text>")


def test_dots_lie_on_the_diagonal_where_the_prediction_is_right() -> None:
    drawn = scattered({"right": [(1.0, 1.0), (3.0, 3.0), (10.0, 10.0)]}, unit="seconds")
    dots = CIRCLE.findall(drawn)
    assert len(dots) == 3
    assert all(abs(float(x) + float(y) - PANEL) < 0.11 for x, y, _ in dots)
    assert {colour for _, _, colour in dots} == {CLOSE}


def test_dots_further_than_a_fifth_have_another_colour() -> None:
    points = [(1.0, 1.19), (1.0, 1.21), (1.21, 1.0)]
    colours = [colour for _, _, colour in CIRCLE.findall(scattered({"a": points}, unit="GiB"))]
    assert colours == [CLOSE, FAR, FAR]


def test_every_family_has_its_name_and_its_number_of_runs() -> None:
    drawn = scattered({"<one>": [(1.0, 1.0)], "two": [(1.0, 2.0), (2.0, 1.0)]}, unit="seconds")
    words = [unescape(word) for word in WORDS.findall(drawn)]
    assert {"<one>", "1 runs", "two", "2 runs"} <= set(words)
