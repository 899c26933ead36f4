"""What stages hand on: whole, or a share of each tensor-parallel rank that is gathered."""

from __future__ import annotations

import numpy as np
import pytest

from planner.cost.configuration import Choice, Choices, Configuration, Configurations, LayerChoices
from planner.cost.layer_costs import StageFixed
from planner.cost.table import cost_table
from planner.hardware import cluster_hardware
from planner.schema.cluster import NetworkLevel, NodeGroup
from planner.schema.job import Stack
from planner.schema.strategy import ActivationCheckpointing
from planner.workload.model import model_workload
from tests.builders import a_cluster, a_job, a_model

NODE, NETWORK = 100e9, 10e9  # bytes a second
TOKENS = 4096


def handed_on(stack: Stack, *, sequence_parallel: bool = False) -> StageFixed:
    """The boundary of stages of four tensor-parallel ranks, on links without latency."""
    levels = (
        NetworkLevel(
            name="node", device_count=4, bandwidth_bytes_per_second=NODE, latency_seconds=0.0
        ),
        NetworkLevel(name="network", bandwidth_bytes_per_second=NETWORK, latency_seconds=0.0),
    )
    group = NodeGroup(name="h100", device="h100-sxm5-80gb", node_count=2, devices_per_node=4)
    (kind,) = cluster_hardware(a_cluster(node_groups=(group,), levels=levels)).kinds
    degrees = {"tensor_parallel_degree": 4, "pipeline_parallel_degree": 2}
    rows = Configurations.of([Configuration(**degrees, sequence_parallel=sequence_parallel)])
    plain = Choices.of(
        [Choice(zero_stage=0, activation_checkpointing=ActivationCheckpointing.NONE)]
    )
    choices = LayerChoices(embedding=plain, blocks=plain, head=plain)
    job = a_job(sequence_length=TOKENS, stack=stack)
    workload = model_workload(a_model())
    return cost_table(workload, kind, job, configurations=rows, choices=choices).fixed


WHOLE = TOKENS * a_model().hidden_size * 2  # bytes in bf16


def test_a_torch_stage_sends_rows_whole() -> None:
    seconds = handed_on(Stack.TORCH).boundary_seconds[0, 0]
    assert seconds == pytest.approx([2 * WHOLE / NODE, 2 * WHOLE / NETWORK])


@pytest.mark.parametrize("stack", [Stack.MEGATRON, Stack.DEEPSPEED])
def test_ranks_with_the_same_rows_send_a_quarter_each_and_gather_three(stack: Stack) -> None:
    """Forward, and back for the gradients."""
    seconds = handed_on(stack).boundary_seconds[0, 0]
    gather = 0.75 * WHOLE / NODE
    expected = [2 * (WHOLE / 4 / link + gather) for link in (NODE, NETWORK)]
    assert seconds == pytest.approx(expected)


@pytest.mark.parametrize("stack", list(Stack))
def test_under_sequence_parallel_a_rank_sends_its_own_rows(stack: Stack) -> None:
    seconds = handed_on(stack, sequence_parallel=True).boundary_seconds[0, 0]
    assert seconds == pytest.approx(np.array([2 * WHOLE / 4 / NODE, 2 * WHOLE / 4 / NETWORK]))
