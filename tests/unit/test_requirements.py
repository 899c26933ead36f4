"""Every skip of a test says what it needs, and the end of a run says what brings it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.requirements import OTHER, REMEDIES, remedy_of, skipped_lines

TESTS = Path(__file__).parents[1]
NAMESPACES = "run as root, outside a container that forbids them"
SKIPS = {"skip", "skipif", "importorskip", "skipTest"}


def reasons_in(source: str) -> Iterator[str | None]:
    """Yield the text, up to what is only known at run time, of each skip's reason."""
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr not in SKIPS:
            continue
        named = [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
        plain = node.args if node.func.attr == "skip" else []
        yield next(map(text_of, [*named, *plain]), None)


def text_of(node: ast.expr) -> str | None:
    """Return the text that an expression begins with."""
    first = node.values[0] if isinstance(node, ast.JoinedStr) else node
    return first.value if isinstance(first, ast.Constant) else None


def given_reasons() -> Iterator[tuple[str, str | None]]:
    """Yield each file and reason of the tests, but the one that puts two words together."""
    for path in sorted(TESTS.rglob("*.py")):
        for reason in reasons_in(path.read_text(encoding="utf-8")):
            if reason != "needs ":
                yield str(path.relative_to(TESTS)), reason


def test_every_skip_gives_a_reason_that_has_a_remedy():
    found = list(given_reasons())

    assert len(found) > 20
    assert [one for one in found if one[1] is None or remedy_of(one[1]) is None] == []


def test_every_remedy_is_of_a_skip_that_there_is():
    given = [reason for _, reason in given_reasons() if reason]
    unused = {start for start in REMEDIES if not any(one.startswith(start) for one in given)}

    assert unused == {"needs Slurm", "needs a framework"}  # put together in tests/exports


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("pytest.skip('no Redis is installed')", "no Redis is installed"),
        ("pytest.skip(f'needs {name}')", "needs "),
        ("pytest.skip(words)", None),
        ("pytest.importorskip('torch')", None),
        ("pytest.importorskip('torch', reason='no package torch')", "no package torch"),
        ("pytest.mark.skipif(True, reason='this machine has a GPU')", "this machine has a GPU"),
    ],
)
def test_reasons_are_read_from_the_source(source, reason):
    assert list(reasons_in(source)) == [reason]


def test_what_was_skipped_is_told_in_a_line_for_each_thing_that_is_lacking():
    reasons = [
        "no Redis is installed",
        "no PostgreSQL server is installed",
        "no network namespaces are allowed: [Errno 1]",
        "no PostgreSQL server is installed",
        "it rains",
    ]

    assert list(skipped_lines(reasons)) == [
        "    2  no PostgreSQL server is installed: apt-get install postgresql",
        "    1  no Redis is installed: apt-get install redis-server",
        f"    1  no network namespaces are allowed: {NAMESPACES}",
        f"    1  it rains: {OTHER}",
    ]
