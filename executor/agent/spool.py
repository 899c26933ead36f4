"""Spool: what a run printed and measured, from its files to the server, each byte and row once.

The files themselves are the buffer: what the server has not acknowledged is read again, by this
agent or by the next. A log's place is its offset in bytes; a row's is its number among the rows.
"""

from __future__ import annotations

import codecs
import os
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from executor.agent.run_folder import RunFolder, Sent
from planner.schema.lease import MetricRow

LOG_PIECE_BYTES = 64 * 1024
ROWS_AT_ONCE = 200
_ROW_BYTES_LIMIT = 4096
_PLACEHOLDER = "?"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPiece:
    """Text that begins at `offset`; it has as many bytes in UTF-8 as the file had there."""

    offset: int
    text: str

    @property
    def end(self) -> int:
        """Return the offset after the text."""
        return self.offset + len(self.text.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPiece:
    """Rows numbered from `sequence`, and the byte of the file after the last of them."""

    sequence: int
    rows: tuple[MetricRow, ...]
    end_bytes: int


class Spool:
    """What of one run the server still has to get."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self.sent: Sent = folder.read_sent()

    def next_log(self, *, is_ended: bool) -> LogPiece | None:
        """Return the next text, on the disk for good; `None` if there is none.

        A character that is not whole yet waits for its rest, unless the run `is_ended`.
        """
        offset = self.sent.log_bytes
        content = _synced_bytes(self._folder.log_path, offset, LOG_PIECE_BYTES)
        text = as_text(content, is_final=is_ended and len(content) < LOG_PIECE_BYTES)
        return LogPiece(offset=offset, text=text) if text else None

    def log_acknowledged(self, end: int) -> None:
        """Remember that the server has the log up to `end`."""
        if end != self.sent.log_bytes:
            self._remember(replace(self.sent, log_bytes=end))

    def next_rows(self) -> RowPiece | None:
        """Return the next rows, on the disk for good; `None` if there are none."""
        begin = self.sent.metric_bytes
        limit = ROWS_AT_ONCE * _ROW_BYTES_LIMIT
        content = _synced_bytes(self._folder.metrics_path, begin, limit)
        lines = content[: content.rfind(b"\n") + 1].splitlines(keepends=True)[:ROWS_AT_ONCE]
        if not lines and len(content) == limit:
            lines = [content]  # no rank writes such a line: it is passed over
        if not lines:
            return None
        rows = tuple(row for line in lines if (row := read_row(line)) is not None)
        end = begin + sum(len(line) for line in lines)
        return RowPiece(sequence=self.sent.metric_rows, rows=rows, end_bytes=end)

    def rows_acknowledged(self, piece: RowPiece, sequence: int) -> None:
        """Remember that the server has all rows below number `sequence`."""
        if sequence == piece.sequence + len(piece.rows):
            found = replace(self.sent, metric_rows=sequence, metric_bytes=piece.end_bytes)
        else:
            end = byte_after_rows(self._folder.metrics_path, sequence)
            found = replace(self.sent, metric_rows=sequence, metric_bytes=end)
        self._remember(found)

    def is_empty(self) -> bool:
        """Return whether the server has everything; half a line at the end is nothing."""
        return self.next_log(is_ended=True) is None and self.next_rows() is None

    def _remember(self, sent: Sent) -> None:
        self.sent = sent
        self._folder.write_sent(sent)


def as_text(content: bytes, *, is_final: bool) -> str:
    """Return `content` as text of as many bytes: what is no character is a question mark.

    Without `is_final`, a character that is cut off at the end is left out.
    """
    decoder = codecs.getincrementaldecoder("utf-8")(errors="meshwright_same_length")
    text = decoder.decode(content, final=is_final)
    # PostgreSQL's text holds no NUL.
    return text.replace("\0", _PLACEHOLDER)


def read_row(line: bytes) -> MetricRow | None:
    """Return a row that a rank wrote, `None` if the line is none (a script may write anything)."""
    try:
        return MetricRow.model_validate_json(line)
    except ValidationError:
        return None


def byte_after_rows(path: Path, count: int) -> int:
    """Return the byte after the first `count` rows of a file."""
    end = 0
    with path.open("rb") as file:
        while count > 0 and (line := file.readline()):
            end += len(line)
            count -= read_row(line) is not None
    return end


def _synced_bytes(path: Path, offset: int, limit: int) -> bytes:
    """Return bytes of a file that others append to, once a crash cannot take them back."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            content = file.read(limit)
            if content:
                os.fdatasync(file.fileno())
            return content
    except FileNotFoundError:
        return b""


def _same_length(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return _PLACEHOLDER * (error.end - error.start), error.end


codecs.register_error("meshwright_same_length", _same_length)
