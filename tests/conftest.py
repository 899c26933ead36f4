"""What all tests share: examples drawn alike in every run, a clock that no load moves, an end.

Searches end by `time.perf_counter`. Here it counts the seconds of this process, so that what they
find does not depend on what else the machine does.
"""

from __future__ import annotations

import gc
import time
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from planner.ilp import milp as solver
from tests.requirements import skipped_lines

# HiGHS knows the clock on the wall alone, so the module that calls them keeps to it.
solver.time = SimpleNamespace(perf_counter=time.perf_counter)
time.perf_counter = time.process_time

settings.register_profile(
    "meshwright",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("meshwright")

# Their tests share ranks, or a browser and a server, which every further worker would start again.
_ON_ONE_WORKER = ("tests/distributed/", "tests/browser/")
# What waits longest begins first, so that nothing long is left when all else is done.
_FIRST = (*_ON_ONE_WORKER, "tests/chaos/", "tests/contract/test_cli_demo.py", "tests/contract/api/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put first what takes longest."""
    items.sort(key=lambda item: [not item.nodeid.startswith(start) for start in _FIRST])


def pytest_collection_finish() -> None:
    """Keep what lives until the end (modules, ten thousand tests) out of collections of garbage."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a module on one worker, whose caches they share, and some whole folders."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - only where it is at work

    class FolderScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            folders = (start for start in _ON_ONE_WORKER if nodeid.startswith(start))
            return next(folders, nodeid.partition("::")[0])

    config.option.loadscopereorder = False
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
