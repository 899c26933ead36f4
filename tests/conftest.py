"""What all tests share: examples drawn alike in every run, a clock that no load moves, an end.

Searches end by `time.perf_counter`. Here it counts the seconds of this process, so that what they
find does not depend on what else the machine does.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.requirements import skipped_lines

time.perf_counter = time.process_time

settings.register_profile(
    "meshwright",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("meshwright")

# Their tests share ranks, or a browser and a server, which every further worker would start again.
_ON_ONE_WORKER = ("distributed", "browser")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a folder that shares expensive processes on one worker."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - only where it is at work

    class FolderScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            folder = Path(nodeid.partition("::")[0]).parent.name
            return folder if folder in _ON_ONE_WORKER else nodeid

    return FolderScheduling(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was skipped, and what brings it."""
    reasons = [
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", ())
        if isinstance(report.longrepr, tuple)
    ]
    if reasons:
        terminalreporter.section("skipped, and what brings it")
        for line in skipped_lines(reasons):
            terminalreporter.write_line(line)
