"""Seconds and bytes priced apart are those of the whole table, for every choice and layer."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import numpy as np
import pytest

from planner.cost.configuration import Choices, LayerChoices
from planner.cost.layer_costs import SecondsTable
from planner.cost.table import UNSYNCED_BY, bytes_table, cost_table, seconds_table
from planner.ilp.pricing import alike
from planner.requests.resolution import resolved_cluster, resolved_model, resolved_request
from planner.space.choices import block_choices, edge_choices
from planner.space.degrees import enumerate_configurations
from tests.builders import a_job
from tests.draws import drawn, of_drawn
from tests.small_jobs import Priced, small_jobs

ONE_OF = 3
JOBS = drawn(range(300, 340), one_of=ONE_OF)
ROUNDING = 1.0 + 1e-12


@pytest.mark.parametrize(
    ("model", "cluster"),
    [("qwen3-30b-a3b", "16xh100-sxm5-80gb"), ("llama-3-8b", "8xl40s-48gb")],
)
def test_neither_part_depends_on_whether_the_other_is_asked_for(model: str, cluster: str) -> None:
    """Offload of activations, whose seconds follow from bytes, is among the choices."""
    job = a_job(global_batch_size=16, sequence_length=4096)
    request = resolved_request(resolved_model(model), resolved_cluster(cluster), job)
    resolved = request.job.resolved
    rows = enumerate_configurations(request.model.resolved, request.hardware, resolved)
    edges = Choices.of(edge_choices(resolved.limits))
    blocks = Choices.of(block_choices(resolved.limits))
    assert blocks.offload_activations.any()
    asked = {
        "configurations": rows.configurations,
        "choices": LayerChoices(blocks=blocks, embedding=edges, head=edges),
    }
    kind = request.hardware.kinds[0]
    whole = cost_table(request.workload, kind, resolved, **asked)
    seconds = seconds_table(request.workload, kind, resolved, **asked)
    held = bytes_table(request.workload, kind, resolved, **asked)
    _assert_same(held, whole.held())
    assert seconds.chain == whole.chain
    _assert_same(seconds.fixed, whole.fixed)
    for own, both in zip(seconds.layers(), whole.layers(), strict=True):
        _assert_same(own.micro_batch_seconds, both.micro_batch_seconds)
        _assert_same(own.step_end_seconds, both.step_end_seconds)


def test_no_layer_takes_less_than_without_syncing() -> None:
    """Nor its forward; and some take more."""
    more = 0
    for seed, job in small_jobs(JOBS):
        every = np.arange(len(job.space.configurations))
        for synced, alone in zip(
            seconds_of(job, every).layers(),
            seconds_of(job, every, is_synced=False).layers(),
            strict=True,
        ):
            own, least = synced.micro_batch_seconds, alone.micro_batch_seconds
            assert (own.total() * ROUNDING >= least.total()).all(), f"job {seed}"
            forward, shortest = (s.total() * s.forward_share for s in (own, least))
            assert (forward * ROUNDING >= shortest).all(), f"job {seed}"
            assert not alone.step_end_seconds.total().any()
            more += int((own.total() > least.total()).sum())
    assert more > of_drawn(3_000, one_of=ONE_OF)


def test_configurations_are_alike_without_syncing_that_differ_by_what_is_synced() -> None:
    several = 0
    for seed, job in small_jobs(JOBS):
        first, whose = alike(job.space.configurations, UNSYNCED_BY)
        every = np.arange(len(job.space.configurations))
        table = seconds_of(job, every, is_synced=False)
        several += len(every) - len(first)
        for layer in table.layers():
            for field in fields(layer.micro_batch_seconds):
                values = getattr(layer.micro_batch_seconds, field.name)
                values = np.broadcast_to(values, (len(every), values.shape[1]))
                np.testing.assert_allclose(
                    values, values[first][whose], rtol=1e-12, err_msg=f"job {seed}"
                )
        boundary = table.fixed.boundary_seconds
        np.testing.assert_allclose(boundary, boundary[first][whose], rtol=1e-12)
    assert several > of_drawn(300, one_of=ONE_OF)


def seconds_of(job: Priced, rows: np.ndarray, *, is_synced: bool = True) -> SecondsTable:
    """How long all layers take in some of the job's configurations."""
    return seconds_table(
        job.problem.workload,
        job.problem.hardware.kinds[0],
        job.problem.job,
        configurations=job.space.configurations.take(rows),
        choices=job.layer_choices(),
        is_synced=is_synced,
    )


def _assert_same(one: object, other: object) -> None:
    """Compare documents of arrays, field by field and all the way down."""
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert np.array_equal(one, other)
    elif isinstance(one, tuple):
        assert len(one) == len(other)
        for own, others in zip(one, other, strict=True):
            _assert_same(own, others)
    elif is_dataclass(one):
        for field in fields(one):
            _assert_same(getattr(one, field.name), getattr(other, field.name))
    else:
        assert one == other
