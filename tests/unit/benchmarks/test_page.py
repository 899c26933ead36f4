"""The page of measurements: each command replaces what is its own and leaves the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import page


@pytest.fixture
def own_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page with two marks."""
    path = tmp_path / "page.md"
    path.write_text(
        "head\n<!-- rows: begin -->\nold\n<!-- rows: end -->\nbetween\n"
        "<!-- growth: begin -->\nkept\n<!-- growth: end -->\ntail\n"
    )
    monkeypatch.setattr(page, "PAGE", path)
    return path


def test_what_stands_between_a_commands_marks_is_replaced(own_page: Path) -> None:
    page.put("rows", ["new", "lines"])
    assert own_page.read_text() == (
        "head\n<!-- rows: begin -->\nnew\nlines\n<!-- rows: end -->\nbetween\n"
        "<!-- growth: begin -->\nkept\n<!-- growth: end -->\ntail\n"
    )


def test_writing_twice_is_writing_once(own_page: Path) -> None:
    page.put("rows", ["new"])
    once = own_page.read_text()
    page.put("rows", ["new"])
    assert own_page.read_text() == once


def test_a_page_without_the_marks_is_an_error(own_page: Path) -> None:
    with pytest.raises(ValueError, match="no marks"):
        page.put("unknown", ["new"])
    assert "unknown" not in own_page.read_text()


def test_the_real_page_has_every_commands_marks() -> None:
    text = page.PAGE.read_text()
    for mark in ("rows", "random cases", "growth"):
        assert f"<!-- {mark}: begin -->" in text
        assert f"<!-- {mark}: end -->" in text
