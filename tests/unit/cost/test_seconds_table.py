"""Seconds priced without bytes are those of the whole table, for every choice and layer."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from planner.cost.configuration import Choices, LayerChoices
from planner.cost.layer_costs import LayerSeconds
from planner.cost.table import cost_table, seconds_table
from planner.resolution import resolved_cluster, resolved_model, resolved_request
from planner.space.choices import block_choices, edge_choices
from planner.space.degrees import enumerate_configurations
from tests.builders import a_job


@pytest.mark.parametrize(
    ("model", "cluster"),
    [("qwen3-30b-a3b", "16xh100-sxm5-80gb"), ("llama-3-8b", "8xl40s-48gb")],
)
def test_seconds_do_not_depend_on_whether_bytes_are_asked_for(model: str, cluster: str) -> None:
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
    whole = cost_table(request.workload, request.hardware.kinds[0], resolved, **asked)
    alone = seconds_table(request.workload, request.hardware.kinds[0], resolved, **asked)
    assert alone.chain == whole.chain
    layers = zip(
        (alone.embedding, *alone.blocks, alone.head),
        (whole.embedding, *whole.blocks, whole.head),
        strict=True,
    )
    for one, other in layers:
        _assert_same(one, other)
    assert np.array_equal(alone.fixed.boundary_seconds, whole.fixed.boundary_seconds)


def _assert_same(one: LayerSeconds, other: LayerSeconds) -> None:
    for part in ("micro_batch_seconds", "step_end_seconds"):
        columns = getattr(one, part)
        for field in fields(columns):
            expected = getattr(getattr(other, part), field.name)
            assert np.array_equal(getattr(columns, field.name), expected), field.name
