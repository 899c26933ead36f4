"""The site of the documentation: what `make docs` builds has every page, each at one place."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
SITE = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_every_page_has_one_place_in_the_navigation() -> None:
    """The README is the first page; decisions are reached from their list."""
    placed = Counter(re.findall(r"^ +- [^:]+: (\S+\.md)$", SITE, re.MULTILINE))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert placed == Counter([*pages, "index.md", "decisions/README.md"])


def test_the_site_loads_nothing_from_elsewhere() -> None:
    """Fonts are the system's; the plugin that takes a script from a network is not there."""
    assert "font: false" in SITE
    assert re.findall(r"^plugins: (.*)$", SITE, re.MULTILINE) == ["[search]"]
