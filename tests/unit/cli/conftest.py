"""The command line as a test sees it: in this process, with its exit code and both streams."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from planner.cli.app import invoke


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one command did."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def fields(self) -> dict[str, Any]:
        """Return the one JSON object on stdout."""
        return json.loads(self.stdout)


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run the command line with the given words."""

    def run(*words: object) -> Outcome:
        capfd.readouterr()
        exit_code = invoke([str(word) for word in words])
        captured = capfd.readouterr()
        return Outcome(exit_code=exit_code, stdout=captured.out, stderr=captured.err)

    return run
