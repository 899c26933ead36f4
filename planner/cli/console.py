"""Where commands write: results on stdout, progress and messages on stderr."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as ProgressBar

    from planner.schema.document import Document
    from planner.schema.progress import Progress

PATIENCE_SECONDS = 1.0
COLUMNS_WITHOUT_TERMINAL = 120


def stdout() -> Console:
    """Return a console for tables; where no terminal sets a width, one that holds them."""
    return _console(to_stderr=False)


def stderr() -> Console:
    """Return the same on stderr, for what is read beside JSON on stdout."""
    return _console(to_stderr=True)


def _console(*, to_stderr: bool) -> Console:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=False, stderr=to_stderr)
    if console.is_terminal:
        return console
    return Console(highlight=False, width=COLUMNS_WITHOUT_TERMINAL, stderr=to_stderr)


def print_document(document: Document) -> None:
    """Print `document` as JSON on stdout."""
    typer.echo(document.to_json(), nl=False)


@contextmanager
def search_progress(description: str) -> Iterator[Callable[[Progress], None]]:
    """Yield a listener that draws a progress bar on stderr once the work takes over a second.

    Only a terminal gets a bar: a log file would be littered with it.
    """
    bar = _bar()
    task = bar.add_task(description, total=None)
    timer = threading.Timer(PATIENCE_SECONDS, bar.start)
    timer.daemon = True

    def listen(progress: Progress) -> None:
        closed = progress.configurations_total - progress.open_count
        bar.update(
            task,
            description=f"{description}: {progress.phase}",
            total=progress.configurations_total,
            completed=closed,
        )

    if bar.console.is_terminal:
        timer.start()
    try:
        yield listen
    finally:
        timer.cancel()
        if timer.is_alive():
            timer.join()
        if bar.live.is_started:
            bar.stop()


@contextmanager
def work_progress(description: str) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a listener (phase, parts done, parts in all) that draws the same bar."""
    with search_progress(description) as listen:
        from planner.schema.progress import Progress

        def hear(phase: str, done: int, total: int) -> None:
            listen(
                Progress(
                    phase=phase,
                    configurations_total=total,
                    open_count=max(total - done, 0),
                    milp_count=0,
                    best_seconds=None,
                    lower_bound_seconds=None,
                )
            )

        yield hear


def _bar() -> ProgressBar:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
