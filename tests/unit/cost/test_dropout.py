"""What dropout of a block's rows takes, by hand: that of scores stands with attention."""

from __future__ import annotations

import pytest

from planner.cost.compute import ComputeSeconds, compute_seconds
from planner.cost.configuration import Configuration, Configurations
from planner.cost.setting import setting
from planner.hardware import cluster_hardware
from planner.importers.clusters import cluster_from_short_form
from planner.importers.models import read_model
from planner.schema.job import Precision, Stack
from planner.workload.model import model_workload
from tests.builders import a_job

TOKENS, HIDDEN = 65536, 1600  # so many that no kernel waits for its launch
GPT = model_workload(read_model("gpt2-xl")[1]).runs[0][0]
MEMORY = 2039e9 * 0.85  # bytes a second that copies reach on an A100


def seconds(tensor: int, job: dict[str, object]) -> ComputeSeconds:
    """One sequence on eight A100, with sequence parallelism where tensors are."""
    (kind,) = cluster_hardware(cluster_from_short_form("1x8xa100-sxm4-80gb")).kinds
    layout = Configuration(tensor_parallel_degree=tensor, sequence_parallel=tensor > 1)
    rows = Configurations.of([layout])
    return compute_seconds(GPT, setting(a_job(sequence_length=TOKENS, **job), kind, rows))


def added(tensor: int = 1, **job: object) -> tuple[float, float]:
    """Bytes for each of the two rows' elements that dropout adds to forward and backward."""
    plain, dropped = seconds(tensor, job), seconds(tensor, {**job, "dropout": True})
    pace = MEMORY / (2 * TOKENS * HIDDEN / tensor)
    return (
        (dropped.forward - plain.forward).item() * pace,
        (dropped.backward - plain.backward).item() * pace,
    )


@pytest.mark.parametrize(
    ("stack", "precision", "forward", "backward"),
    [
        (Stack.TORCH, Precision.BF16, 2 + 2 + 1, 2 + 1 + 2),
        (Stack.TORCH, Precision.FP32, 4 + 4 + 1, 4 + 1 + 4),
        (Stack.MEGATRON, Precision.BF16, 0, 0),
    ],
)
def test_dropout_moves_a_row_and_its_mask_where_it_is_no_part_of_the_residuals_sum(
    stack: Stack, precision: Precision, forward: float, backward: float
) -> None:
    found = added(stack=stack, precision=precision)
    assert found == pytest.approx((forward, backward))


def test_ranks_that_split_sequences_drop_their_own_tokens_alone() -> None:
    assert added(tensor=2) == pytest.approx((5, 5))


def test_the_rows_are_dropped_again_where_a_block_runs_again() -> None:
    """5 bytes for each of two rows of 1,600 on each of 65,536 tokens."""
    plain, dropped = (seconds(1, {"dropout": flag}) for flag in (False, True))
    again = (dropped.recompute_selective - plain.recompute_selective).item()
    assert again * MEMORY == pytest.approx(5 * 2 * TOKENS * HIDDEN)
