"""The demo's steps: a progress bar, a line for each one done, a name for the one that fails."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import SubprocessError
from typing import TYPE_CHECKING

from planner.errors import MeshwrightError

if TYPE_CHECKING:
    from rich.console import Console

BAR_COLUMNS = 12


class DemoError(MeshwrightError):
    """A step of the demo failed: which, and why."""


class Steps:
    """Counts the steps, shows each while it runs and keeps a line of it with its seconds."""

    def __init__(self, console: Console, *, step_count: int) -> None:
        self._console = console
        self._step_count = step_count
        self._done_count = 0

    @contextmanager
    def step(self, description: str) -> Iterator[None]:
        """Run the body as the next step.

        Raises:
            DemoError: if the body fails; the message names the step and the reason.
        """
        number = self._done_count + 1
        start = time.perf_counter()
        try:
            with self._console.status(f"{self._bar(self._done_count)} {description}"):
                yield
        except (MeshwrightError, OSError, SubprocessError) as error:
            raise DemoError(
                f"demo step {number} of {self._step_count} ({description}) failed: {error}"
            ) from error
        self._done_count = number
        seconds = time.perf_counter() - start
        self._console.print(
            f"{self._bar(number)} [green]✓[/] {description} [dim]{seconds:.1f} s[/]"
        )

    def _bar(self, done_count: int) -> str:
        filled = BAR_COLUMNS * done_count // self._step_count
        line = "━" * filled
        rest = "╌" * (BAR_COLUMNS - filled)
        return f"[cyan]{line}[/][dim]{rest}[/] {done_count}/{self._step_count}"
