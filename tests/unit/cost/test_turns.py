"""What interleaved pipelines hide of syncing once a step, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from planner.cost.configuration import Choice, Choices, Configuration, Configurations
from planner.cost.layers import layer_seconds, no_extras
from planner.cost.model_parallel import Role
from planner.cost.setting import Setting, setting
from planner.cost.states import SyncSeconds, local_parameters, sync_seconds
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.importers.models import read_model
from planner.schema.job import Stack
from planner.schema.strategy import PipelineSchedule
from planner.workload.layer import LayerWorkload
from planner.workload.model import model_workload
from tests.builders import a_job

LLAMA: LayerWorkload = model_workload(read_model("llama-3-8b")[1]).runs[0][0]
INTERLEAVED, PLAIN = PipelineSchedule.INTERLEAVED, PipelineSchedule.ONE_F_ONE_B
CONTENTION = 0.08


def a_setting(schedule: PipelineSchedule, *, virtual: int, length: int) -> Setting:
    """Four stages of eight ranks that share their states; DeepSpeed with overlap, and no host."""
    (kind,) = cluster_hardware(cluster_from_short_form("4x8xh100-sxm5-80gb")).kinds
    rows = Configurations.of(
        [
            Configuration(
                data_parallel_shard_degree=8,
                pipeline_parallel_degree=4,
                virtual_pipeline_degree=virtual,
                pipeline_schedule=schedule,
                micro_batch_count=8,
            )
        ]
    )
    job = a_job(
        sequence_length=length,
        stack=Stack.DEEPSPEED,
        overlapped_gradients=True,
        cuda_graphs=True,
    )
    return setting(job, kind, rows)


def left(here: Setting, role: Role = "block") -> float:
    """Return what of one block's gradients is not hidden, but for its gather."""
    choices = Choices.of([Choice(zero_stage=1)])
    seconds = layer_seconds(LLAMA, role, choices=choices, setting=here, extras=no_extras(here))
    return float(
        (seconds.step_end_seconds.data_parallel_exposed - synced(here).gather_trained).item()
    )


def synced(here: Setting) -> SyncSeconds:
    """Return what syncing the block takes with nothing beside it."""
    return sync_seconds(local_parameters(LLAMA.parameters, here), here)


def test_all_but_one_of_the_virtual_stages_hide_under_a_round_of_micro_batches() -> None:
    """A short backward hides little; four of them hide all, for three virtual stages of four."""
    here = a_setting(INTERLEAVED, virtual=4, length=64)
    reduce = synced(here).reduce_scatter.item()
    alone = left(a_setting(PLAIN, virtual=1, length=64))
    assert CONTENTION * reduce < alone < reduce
    hidden = (reduce - alone) / (1 - CONTENTION)
    beside = reduce - (1 - CONTENTION) * min(4 * hidden, reduce)
    assert left(here) == pytest.approx(alone / 4 + 3 * beside / 4)


def test_long_backwards_hide_the_same_however_ranks_take_turns() -> None:
    here = a_setting(INTERLEAVED, virtual=4, length=65536)
    assert left(here) == pytest.approx(CONTENTION * synced(here).reduce_scatter.item())


def test_the_embedding_is_synced_last_and_the_head_first() -> None:
    here = a_setting(INTERLEAVED, virtual=4, length=64)
    plain = a_setting(PLAIN, virtual=1, length=64)
    assert left(here, "embedding") == pytest.approx(left(plain, "embedding"))
    assert left(here, "head") < left(here) < left(here, "embedding")


def test_ranks_take_turns_under_the_interleaved_schedule_alone() -> None:
    rows = Configurations.of(
        [
            Configuration(
                pipeline_parallel_degree=4, virtual_pipeline_degree=2, pipeline_schedule=s
            )
            for s in (INTERLEAVED, PipelineSchedule.ZB_V)
        ]
    )
    assert np.array_equal(rows.turns, [2, 1])
