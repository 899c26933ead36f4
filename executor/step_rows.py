"""Step rows: what a rank measured in each step, a line each, for whoever watches the run.

All ranks of a node append to one file. A line goes out in one write, so that lines of several ranks
never mix and one that was killed leaves whole lines.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from executor.variables import METRICS_PATH


class Measured(Protocol):
    """What of a step's metrics is written."""

    @property
    def loss(self) -> float:
        """Return the mean loss of the global batch."""

    @property
    def seconds(self) -> float:
        """Return this rank's seconds."""

    @property
    def between_seconds(self) -> float:
        """Return this rank's seconds since its step before: of the script, as of its loader."""

    @property
    def peak_memory_bytes(self) -> int | None:
        """Return this rank's peak, `None` if it was not metered."""

    @property
    def token_share(self) -> float:
        """Return how many of the plan's tokens the global batch had."""


class StepObserver(Protocol):
    """What is told of each step of this rank."""

    def step_begins(self) -> None:
        """Note that a step begins, of which the model has seen nothing yet."""

    def step_ended(self, step: int, measured: Measured) -> None:
        """Note what step number `step`, counted from 1, measured."""


class StepRows:
    """Appends a rank's steps to a file."""

    def __init__(self, path: Path, *, rank: int, tokens_per_step: int | None) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._rank = rank
        self._tokens_per_step = tokens_per_step

    @staticmethod
    def wanted(
        variables: Mapping[str, str], *, rank: int, tokens_per_step: int | None
    ) -> StepRows | None:
        """Return rows for the file that the environment names, `None` if it names none."""
        path = variables.get(METRICS_PATH)
        if not path:
            return None
        return StepRows(Path(path), rank=rank, tokens_per_step=tokens_per_step)

    def step_begins(self) -> None:
        """Do nothing: a step is written once it is measured."""

    def step_ended(self, step: int, measured: Measured) -> None:
        """Append one step; what is not finite becomes null."""
        seconds = measured.seconds + measured.between_seconds
        tokens = (self._tokens_per_step or 0) * measured.token_share
        row = {
            "rank": self._rank,
            "step": step,
            "step_seconds": measured.seconds,
            "tokens_per_second": tokens / seconds if tokens and seconds > 0 else None,
            "loss": measured.loss if math.isfinite(measured.loss) else None,
            "peak_memory_bytes": measured.peak_memory_bytes,
        }
        os.write(self._handle, json.dumps(row).encode() + b"\n")
