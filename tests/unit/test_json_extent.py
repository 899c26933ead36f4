"""JSON with too many values or levels is refused before it is understood."""

from __future__ import annotations

import json

import pytest

from planner.errors import DocumentError
from planner.schema.json_text import check_extent


def check(content: bytes, *, values: int = 100, levels: int = 10) -> None:
    """Look through the content."""
    check_extent(content, source="body", values_limit=values, nesting_limit=levels)


def test_values_are_counted_and_levels_too():
    check(json.dumps([0] * 99).encode())
    check(b"[" * 10 + b"]" * 10)

    with pytest.raises(DocumentError, match="has more than 100 values"):
        check(json.dumps([0] * 102).encode())
    with pytest.raises(DocumentError, match="is nested too deep"):
        check(b"[" * 11 + b"]" * 11)


@pytest.mark.parametrize("text", [",:[{" * 100, '\\",[' * 100, "\\" * 101, '"' * 100])
def test_what_strings_hold_is_not_counted(text):
    check(json.dumps({"text": text, text: 1}).encode())


@pytest.mark.parametrize("content", [b'"' + b'\\"' * 2**20, b'"' * 2**20, b'"a' * 2**20 + b"\\"])
def test_strings_without_an_end_take_no_longer(content):
    """Linear: otherwise these would take hours."""
    check(content, values=2**22)
