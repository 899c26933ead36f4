"""Uploads: a run's log and metrics go to the server while it runs, in order, until acknowledged."""

from __future__ import annotations

import threading

from executor.agent.backoff import Backoff
from executor.agent.client import Client
from executor.agent.errors import AwayError, RefusedError, StaleError
from executor.agent.held_lease import HeldLease
from executor.agent.spool import RowPiece, Spool
from planner.schema.lease import LogChunk, MetricsChunk


class Uploads(threading.Thread):
    """Sends what is spooled, every so often, and all of it once the run has ended."""

    def __init__(self, client: Client, held: HeldLease) -> None:
        super().__init__(name="uploads", daemon=True)
        self._client = client
        self._held = held
        self._spool = Spool(held.folder)
        self._is_ended = threading.Event()
        self.all_sent = threading.Event()
        self.refusal: str | None = None

    def end(self) -> None:
        """Say that nothing more is going to be written: `all_sent` is set when all is there."""
        self._is_ended.set()

    def run(self) -> None:
        """Send until all is sent, or the lease is over or lost."""
        backoff = Backoff()
        while not self._held.over.is_set() and not self._held.is_lost:
            is_ended = self._is_ended.is_set()
            try:
                self._flush(is_ended=is_ended)
            except AwayError as error:
                self._held.over.wait(backoff.pause_seconds(error.retry_seconds))
                continue
            except StaleError as error:
                self._held.lose(str(error))
                return
            except RefusedError as error:
                # The same would be refused again. What was acknowledged stands.
                self.refusal = str(error)
                self.all_sent.set()
                return
            backoff.reset()
            if is_ended:
                self.all_sent.set()
                return
            self._is_ended.wait(self._held.lease.intervals.flush_seconds)

    def _flush(self, *, is_ended: bool) -> None:
        lease = self._held.lease
        while not self._held.is_lost and (piece := self._spool.next_log(is_ended=is_ended)):
            chunk = LogChunk(epoch=lease.epoch, offset=piece.offset, text=piece.text)
            self._spool.log_acknowledged(self._client.log(lease.id, chunk))
        while not self._held.is_lost and (rows := self._spool.next_rows()):
            self._send_rows(rows)

    def _send_rows(self, piece: RowPiece) -> None:
        acknowledged = piece.sequence
        if piece.rows:
            chunk = MetricsChunk(
                epoch=self._held.lease.epoch, sequence=piece.sequence, rows=piece.rows
            )
            acknowledged = self._client.metrics(self._held.lease.id, chunk)
            last = piece.rows[-1]
            self._held.step, self._held.loss = last.step, last.loss
            self._held.step_seconds = last.step_seconds
        self._spool.rows_acknowledged(piece, acknowledged)
