"""Seconds and bytes priced apart are those of the whole table, for every choice and layer."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import numpy as np
import pytest

from planner.cost.configuration import Choices, LayerChoices
from planner.cost.table import bytes_table, cost_table, seconds_table
from planner.requests.resolution import resolved_cluster, resolved_model, resolved_request
from planner.space.choices import block_choices, edge_choices
from planner.space.degrees import enumerate_configurations
from tests.builders import a_job


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
