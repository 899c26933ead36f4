"""Gradient clipping: a pass over gradients, a sum over all ranks, and a wait for the last stage."""

from __future__ import annotations

import pytest

from planner.cost.step import predict_simulated
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_fields
from planner.importers.models import read_model
from planner.schema.job import Job
from planner.schema.plan import Prediction
from planner.schema.strategy import LayerGroup, Stage, Strategy
from planner.workload.model import model_workload

BLOCK = 4096 * (4096 + 1024 + 1024 + 4096) + 3 * 4096 * 14336 + 2 * 4096
EDGE = 128256 * 4096
LATENCY_SECONDS = 0.25


def predicted(*blocks: int, gradient_clipping: bool, latency: float = 0.0) -> Prediction:
    """Price Llama-3-8B on two stages of one device each, on a link of that latency."""
    _, graph = read_model("llama-3-8b")
    level = {
        "name": "link",
        "bandwidth_bytes_per_second": 1e15,
        "latency_seconds": latency,
    }
    group = {"name": "h100", "device": "h100-sxm5-80gb", "node_count": 1, "devices_per_node": 2}
    cluster = cluster_from_fields({"name": "two", "node_groups": [group], "levels": [level]})
    firsts = [sum(blocks[:index]) for index in range(len(blocks))]
    strategy = Strategy(
        pipeline_parallel_degree=2,
        micro_batch_count=4,
        pipeline_schedule="gpipe",
        stages=tuple(
            Stage(stage=index, layers=(LayerGroup(first_block=firsts[index], block_count=count),))
            for index, count in enumerate(blocks)
        ),
    ).resolved(block_count=32, global_batch_size=4)
    job = Job(global_batch_size=4, sequence_length=2048, gradient_clipping=gradient_clipping)
    return predict_simulated(model_workload(graph), cluster_hardware(cluster), job, strategy)


def ends(prediction: Prediction) -> list[float]:
    """Return the seconds of each stage once a step."""
    return [stage.step_end_seconds for stage in prediction.stages]


def test_the_norm_reads_every_gradient_once() -> None:
    """4 of AdamW's 38 bytes a parameter, at the memory's rate; the head's norm is one row more."""
    with_norm = ends(predicted(16, 16, gradient_clipping=True))
    without = ends(predicted(16, 16, gradient_clipping=False))
    first, second = (a - b for a, b in zip(with_norm, without, strict=True))
    assert first / with_norm[0] == pytest.approx(4.0 / 38.0)
    parameters = 16 * BLOCK + EDGE
    assert second / first == pytest.approx((parameters + 4096) / parameters)


def test_the_norm_is_summed_over_all_ranks_once() -> None:
    """Two ranks of one level take its latency x log2(2) / 3."""
    near = ends(predicted(16, 16, gradient_clipping=True))
    far = ends(predicted(16, 16, gradient_clipping=True, latency=LATENCY_SECONDS))
    added = [a - b for a, b in zip(far, near, strict=True)]
    assert added == pytest.approx([LATENCY_SECONDS / 3.0] * 2)
    without = ends(predicted(16, 16, gradient_clipping=False, latency=LATENCY_SECONDS))
    assert without == pytest.approx(ends(predicted(16, 16, gradient_clipping=False)))


def test_every_stage_waits_for_the_last_before_it_updates() -> None:
    """Stage 0 ends last with 2 blocks; stage 1 has 30 to update, and can only then begin."""
    found = predicted(2, 30, gradient_clipping=True)
    alone = predicted(2, 30, gradient_clipping=False)
    assert found.simulated is not None
    assert alone.simulated is not None
    (of_first, of_second), (first, second) = ends(found), ends(alone)
    backward = alone.stages[0].backward_seconds
    before = alone.simulated.step_seconds - max(first + backward, second)
    assert found.simulated.step_seconds == pytest.approx(before + backward + of_second)
    assert of_second > of_first
