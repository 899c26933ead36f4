"""What is left of a micro-batch's collectives beside its compute, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.cost.configuration import Choice, Choices, Configuration, Configurations
from planner.cost.setting import setting
from planner.cost.states import LocalParameters, SyncSeconds
from planner.cost.syncing import Windows, micro_batch_sync
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from tests.builders import a_job

SECOND = np.ones((1, 1))


def exposed(zero_stage: int, **job: Any) -> tuple[float, float]:
    """Gathers of 2 and reductions of 3 s, beside a forward of 10 s and a backward of 20."""
    (kind,) = cluster_hardware(cluster_from_short_form("1x8xh100-sxm5-80gb")).kinds
    rows = Configurations.of([Configuration(data_parallel_shard_degree=8)])
    found = micro_batch_sync(
        SyncSeconds(
            gather=2.0 * SECOND,
            gather_trained=0.0 * SECOND,
            reduce_scatter=3.0 * SECOND,
            all_reduce=0.0 * SECOND,
            replicas=0.0 * SECOND,
        ),
        Windows(
            forward=10.0 * SECOND,
            backward=20.0 * SECOND,
            recompute=0.0 * SECOND,
            host=0.0 * SECOND,
            casts=0.0 * SECOND,
        ),
        Choices.of([Choice(zero_stage=zero_stage)]),
        setting(a_job(stack="deepspeed", **job), kind, rows),
        held=LocalParameters(dense=SECOND, expert=0.0 * SECOND),
    )
    return found.forward.item(), found.backward.item()


@pytest.mark.parametrize(
    ("overlaps", "second", "third"),
    [
        # What hides slows compute by 8 %; stage 3 gathers before backward too.
        (None, (0.0, 3.0), (0.16, 0.4)),
        (True, (0.0, 0.24), (0.16, 0.4)),
        (False, (0.0, 3.0), (2.0, 5.0)),
    ],
)
def test_deepspeeds_stage_3_alone_overlaps_unless_it_is_told(
    overlaps: bool | None, second: tuple[float, float], third: tuple[float, float]
) -> None:
    assert exposed(2, overlapped_gradients=overlaps) == pytest.approx(second)
    assert exposed(3, overlapped_gradients=overlaps) == pytest.approx(third)
