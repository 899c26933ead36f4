"""Replaced file: a file that is written whole or not at all, and is there after a crash."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, text: str, *, is_synced: bool = True) -> None:
    """Write `text` to `path` at once: who reads sees the old or the new, and after a crash too."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        if is_synced:
            os.fsync(file.fileno())
    os.replace(draft, path)  # noqa: PTH105
    if is_synced:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
