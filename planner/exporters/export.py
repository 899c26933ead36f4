"""Export: the files that a plan becomes for one target, and what they lose of it."""

from __future__ import annotations

from dataclasses import dataclass

from planner.schema.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """A file by its name, which has no directory, and its text."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """What a plan becomes for a target.

    `losses` say, each in a sentence, where the target cannot express the plan and what it does
    instead. `strategy` is what the files say: the plan's own where nothing is lost, and what
    importing the files gives.
    """

    target: str
    files: tuple[ExportedFile, ...]
    losses: tuple[str, ...]
    strategy: Strategy
