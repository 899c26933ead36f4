"""The architecture page maps the search: all its files, and what to begin with is there."""

from __future__ import annotations

import re
from functools import reduce
from importlib import import_module
from pathlib import Path

PAGE = Path("docs/architecture.md")
HEART = Path("planner/ilp")


def rows() -> dict[str, list[str]]:
    """The names to begin with, by file."""
    page = PAGE.read_text(encoding="utf-8")
    table = page.split("<!-- search map: begin -->")[1].split("<!-- search map: end -->")[0]
    cells = [line.split("|")[1:4] for line in table.strip().splitlines()[2:]]
    return {
        re.findall("`(.+?)`", file)[0]: re.findall("`(.+?)`", begin) for file, _, begin in cells
    }


def test_every_file_of_the_search_is_on_the_map() -> None:
    assert set(rows()) == {path.name for path in HEART.glob("*.py")} - {"__init__.py"}


def test_what_to_begin_with_is_in_its_file() -> None:
    for file, names in rows().items():
        module = import_module(f"planner.ilp.{file.removesuffix('.py')}")
        assert names, file
        for name in names:
            found = reduce(getattr, name.split("."), module)
            assert getattr(found, "__module__", module.__name__) == module.__name__, name
