"""What all tests share: examples drawn alike in every run, and one worker for those that share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

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
