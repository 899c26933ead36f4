"""What the site of the documentation needs beyond its pages: a first page, and links that hold.

The first page is the README. Links from pages to files of the repository, which the site does not
have, become plain text; all others must lead somewhere, or `make docs` fails.
"""
# ruff: noqa: INP001 - a hook that mkdocs loads by its path

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

_ROOT = Path(__file__).parents[1]
_START, _README = "index.md", "README.md"
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?://|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the README as the first page."""
    content = (_ROOT / _README).read_text(encoding="utf-8")
    files.append(File.generated(config, _START, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Have each link lead to a page of the site, or be its text alone."""
    del config
    here = page.file.src_uri
    at = _README if here == _START else posixpath.join("docs", here)

    def link(found: re.Match[str]) -> str:
        text, target, anchor = found.group(1), found.group(2), found.group(3) or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(at), target))
        name = _START if path == _README else path.removeprefix("docs/")
        is_page = path == _README or path.startswith("docs/")
        if not is_page or files.get_file_from_path(name) is None:
            return text if (_ROOT / path).exists() else found.group()
        return f"[{text}]({posixpath.relpath(name, posixpath.dirname(here) or '.')}{anchor})"

    return _LINK.sub(link, markdown)
