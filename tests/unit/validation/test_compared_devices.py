"""Which devices' predictions were compared with published runs, as their profiles say it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.hardware import device_names, device_profile
from planner.importers.measured_runs import read_measured_runs
from planner.validation.machine import cluster_of
from planner.validation.reasons import Unpriced

DATA = Path(__file__).parents[4] / "shared" / "data"
PUBLISHED = DATA / "measured_runs.jsonl"


def devices_of(path: Path) -> Iterator[str]:
    """Yield the device of each run that has one with a profile."""
    for run in read_measured_runs(path):
        try:
            yield from cluster_of(run).devices
        except Unpriced:
            continue


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published runs are not here")
def test_profiles_say_which_devices_published_runs_are_of() -> None:
    files = [PUBLISHED, *DATA.glob("released_*/*.jsonl")]
    found = {device for path in files for device in devices_of(path)}
    said = {name for name in device_names() if device_profile(name).compared_with_runs}
    assert said == found
