"""A plan for devices that no ranks of ours run on is refused by the device's name."""

from __future__ import annotations

from importlib.resources import files

import pytest
import yaml

from executor.device_choice import chosen_device
from executor.errors import LaunchError
from planner.executor_fields import PLANNED_ONLY
from planner.schema.strategy import Strategy
from tests.unit.exporters.plans import plan_of


def test_they_are_the_devices_whose_profiles_say_so() -> None:
    profiles = [yaml.safe_load(f.read_text()) for f in (files("profiles") / "devices").iterdir()]
    said = {one["device"] for one in profiles if one.get("planned_only")}
    assert said == PLANNED_ONLY


@pytest.mark.parametrize("asked", [None, "cuda"])
def test_a_plan_for_one_is_refused_by_its_name(asked: str | None) -> None:
    plan = plan_of(Strategy(data_parallel_shard_degree=8), cluster="8xgaudi2")
    with pytest.raises(LaunchError, match="can be planned for, and not run on") as refused:
        chosen_device(plan, asked, local_ranks=8)
    assert refused.value.value == "gaudi2-96gb"
    assert chosen_device(plan, "cpu", local_ranks=8) == "cpu"
