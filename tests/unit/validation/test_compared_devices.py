"""Which devices' predictions were compared with published runs, as their profiles say it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.intervals import pair_of
from planner.hardware import device_names, device_profile
from planner.importers.measured_runs import read_measured_runs
from planner.schema.job import Stack
from planner.validation.case import case_of
from planner.validation.machine import cluster_of
from planner.validation.measurement import BULK_TIER, measured_seconds
from planner.validation.reasons import SetAside, Unpriced

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


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published runs are not here")
def test_profiles_say_which_stacks_were_learnt_from_on_their_chip() -> None:
    """Constants were chosen on runs of this file alone, of known stacks."""
    found: dict[object, set[Stack]] = {}
    for run in read_measured_runs(PUBLISHED):
        try:
            case = case_of(run)
        except Unpriced:
            continue
        if run.tier != BULK_TIER and not isinstance(measured_seconds(case), SetAside):
            chip, stack = pair_of(case.hardware.kinds[0].device, case.job.stack)
            found.setdefault(chip, set()).add(stack)
    for name in device_names():
        chip, _ = pair_of(name, Stack.TORCH)
        assert set(device_profile(name).learnt_stacks) == found.get(chip, set()), name
