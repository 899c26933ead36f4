"""The reference is what the schemas say now, and names every field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from planner.schema.reference import DOCUMENTS, page

PAGE = Path(__file__).parents[2] / "docs" / "reference.md"


def test_page_is_up_to_date():
    """If not, run `python -m planner.schema.reference > docs/reference.md`."""
    assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("title", DOCUMENTS)
def test_every_field_of_a_document_has_its_row(title):
    _, _, section = page().partition(f"## {title}\n")
    missing = [name for name in DOCUMENTS[title].model_fields if f"| `{name}` |" not in section]
    assert missing == []


def test_links_within_the_page_lead_to_a_heading():
    text = page()
    headings = {
        line.lstrip("#").strip().lower().replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("#")
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= headings
