"""Sums over causes, by choice and price, of the tables that they are made from."""

from __future__ import annotations

import numpy as np

from planner.cost.configuration import Choices, LayerChoices
from planner.cost.layer_costs import CostTable
from planner.cost.table import cost_table
from planner.ilp.cost_arrays import Sheet
from planner.requests.resolution import resolved_cluster, resolved_model, resolved_request
from planner.space.choices import block_choices, edge_choices
from planner.space.degrees import enumerate_configurations
from tests.builders import a_job


def a_table() -> CostTable:
    """All configurations of a mixture on two nodes, whose layers are of several kinds."""
    job = a_job(global_batch_size=16, sequence_length=4096)
    request = resolved_request(
        resolved_model("qwen3-30b-a3b"), resolved_cluster("16xh100-sxm5-80gb"), job
    )
    resolved = request.job.resolved
    rows = enumerate_configurations(request.model.resolved, request.hardware, resolved)
    edges = Choices.of(edge_choices(resolved.limits))
    blocks = Choices.of(block_choices(resolved.limits))
    return cost_table(
        request.workload,
        request.hardware.kinds[0],
        resolved,
        configurations=rows.configurations,
        choices=LayerChoices(blocks=blocks, embedding=edges, head=edges),
    )


def test_a_sheet_has_the_sums_of_its_table() -> None:
    table = a_table()
    sheet = Sheet.of(table)
    assert sheet.spent.block_counts().tolist() == [count for _, count in table.chain]
    for costs, spent, held in zip(
        table.layers(), sheet.spent.layers, sheet.held.layers, strict=True
    ):
        seconds, own = costs.micro_batch_seconds, costs.bytes  # type: ignore[attr-defined]
        causes = (
            seconds.compute + seconds.recompute + seconds.tensor_parallel
            + seconds.context_parallel + seconds.expert_parallel + seconds.host
            + seconds.pipeline_point_to_point + seconds.data_parallel_exposed
            + seconds.offload_exposed
        )  # fmt: skip
        ends = costs.step_end_seconds
        np.testing.assert_allclose(spent.pace, causes.T, rtol=1e-12)
        np.testing.assert_allclose(spent.forward, (causes * seconds.forward_share).T, rtol=1e-12)
        np.testing.assert_allclose(
            spent.weight_gradient, (causes * seconds.weight_gradient_share).T, rtol=1e-12
        )
        np.testing.assert_allclose(
            spent.end,
            (ends.data_parallel_exposed + ends.offload_exposed + ends.optimizer).T,
            rtol=1e-12,
        )
        static = own.parameters + own.gradients + own.optimizer + own.communication_buffers
        np.testing.assert_allclose(held.static, static.T, rtol=1e-12)
        assert np.array_equal(held.activations, own.activations.T)
        assert np.array_equal(held.transient, own.transient.T)
        assert np.array_equal(held.host, own.host.T)
        assert np.array_equal(held.host_activations, own.host_activations.T)
