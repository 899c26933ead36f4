"""Status: what a person sees of an agent: one living line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from executor.agent.held_lease import HeldLease
from planner.units import format_seconds

if TYPE_CHECKING:
    from rich.status import Status

_PLAIN_SECONDS = 30.0


class StatusLine:
    """Says what happens, and shows what is going on."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._shown = ""
        self._shown_at = 0.0
        self._live: Status | None = _live_status() if sys.stdout.isatty() else None

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """Print an event, with the time of day."""
        line = f"{time.strftime('%H:%M:%S')} {self._name}: {text}"
        if self._live is not None:
            self._live.console.print(line, markup=False, highlight=False)
        else:
            print(line, flush=True)  # noqa: T201 - what a log shows

    def waiting(self, server: str, *, is_away: bool) -> None:
        """Show that there is nothing to run."""
        self._show(f"the server {server} is away, trying again" if is_away else "waiting for a run")

    def running(self, held: HeldLease) -> None:
        """Show how far a run is."""
        self._show(run_line(held))

    def _show(self, text: str) -> None:
        if self._live is not None:
            self._live.update(f"{self._name}: {text}")
            return
        now = time.monotonic()
        if text != self._shown and (not self._shown_at or now - self._shown_at >= _PLAIN_SECONDS):
            self._shown, self._shown_at = text, now
            self.say(text)


def run_line(held: HeldLease) -> str:
    """Return one line about a run: which, where, how far, how fast, and whether it is heard of."""
    lease = held.lease
    parts = [
        f"run {lease.run_id} attempt {lease.attempt}",
        f"node {lease.node_rank + 1}/{lease.node_count}, {len(lease.ranks)} ranks",
        held.state.value,
    ]
    if held.step is not None:
        parts.append(f"step {held.step}")
    if held.loss is not None:
        parts.append(f"loss {held.loss:.4f}")
    if held.step_seconds is not None:
        parts.append(f"{format_seconds(held.step_seconds)} a step")
    if held.checkpoint_step is not None:
        parts.append(f"checkpoint {held.checkpoint_step}")
    if held.is_away:
        left = max(0.0, held.folder.seconds_left())
        parts.append(f"server away, training goes on for {left:.0f} s more")
    return " · ".join(parts)


def _live_status() -> Status:
    from rich.console import Console  # noqa: PLC0415 - only on a terminal

    status = Console().status("starting")
    status.start()
    return status
