"""Files that users name, read whole and bounded: none without an end, none that is waited on."""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from planner.errors import DocumentError

PIPE_WAIT_SECONDS = 30.0
"""How long a pipe may be silent; what fills one (`<(ssh host cat job.yaml)`) may need a moment."""
_PIECE_BYTES = 2**20


def file_content(
    path: Path,
    *,
    bytes_limit: int,
    too_large: str = "give the configuration alone, without weights or vocabulary",
    missing: str = "check the path",
) -> bytes:
    """Return the bytes of the file or pipe at `path`; `too_large` and `missing` are remedies.

    Raises:
        DocumentError: if it is missing, neither a file nor a pipe, a pipe that stays silent,
            larger than the limit, or unreadable.
    """
    with readable(path, missing=missing):
        check_kind(path.stat().st_mode, path)
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would block in opening
        try:
            content = _content(handle, path, bytes_limit=bytes_limit)
            size = max(os.fstat(handle).st_size, len(content))
        finally:
            os.close(handle)
    if len(content) > bytes_limit:
        raise DocumentError(
            f"file is larger than {bytes_limit} bytes",
            field=str(path),
            value=f"{size} bytes",
            remedy=too_large,
        )
    return content


def check_kind(mode: int, path: Path, *, pipes: bool = True) -> None:
    """Refuse what a file of this `mode` has no end of, or that only a device has.

    Raises:
        DocumentError: if it is a device or a socket, or a pipe where none is allowed.
    """
    allowed = stat.S_ISREG(mode) or stat.S_ISDIR(mode) or (pipes and stat.S_ISFIFO(mode))
    if not allowed:
        raise DocumentError(
            "is not a file", field=str(path), value=_kind(mode), remedy="give a file with an end"
        )


def _kind(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def _content(handle: int, path: Path, *, bytes_limit: int) -> bytes:
    """Return what is in a file or written to a pipe, one byte more than the limit at most."""
    waiting = select.poll()
    waiting.register(handle, select.POLLIN)
    content = bytearray()
    while len(content) <= bytes_limit:
        if not waiting.poll(PIPE_WAIT_SECONDS * 1000.0):
            raise DocumentError(
                f"is a pipe to which nothing was written for {PIPE_WAIT_SECONDS:g} seconds",
                field=str(path),
                remedy="write the document to it and close it, or give a file",
            )
        piece = os.read(handle, min(_PIECE_BYTES, bytes_limit + 1 - len(content)))
        if not piece:
            break
        content += piece
    return bytes(content)


@contextmanager
def readable(path: Path, *, missing: str = "check the path") -> Iterator[None]:
    """Raise what the system says of reading `path` as an error of ours.

    Raises:
        DocumentError: if it is missing or cannot be read.
    """
    try:
        yield
    except FileNotFoundError:
        raise DocumentError("no such file", field=str(path), remedy=missing) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise DocumentError(
            f"cannot be read: {reason}", field=str(path), remedy="give a readable file"
        ) from None
