"""What all tests share: examples drawn alike in every run, and one worker for those that share."""

from __future__ import annotations

from pathlib import Path

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


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a folder that shares expensive processes on one worker."""
    for item in items:
        folder = Path(str(item.path)).parent.name
        if folder in _ON_ONE_WORKER:
            item.add_marker(pytest.mark.xdist_group(folder))
