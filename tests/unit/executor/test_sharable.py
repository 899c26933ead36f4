"""Sequences, heads and experts that do not fall into equal parts are refused before ranks start."""

from __future__ import annotations

from typing import Any

import pytest

from executor.apply.sharable import check_exchanged_heads, check_experts, check_sequence
from executor.errors import UnsupportedPlanError
from executor.models.declaration import Shapes
from planner.schema.strategy import Strategy


def shapes(**changes: int) -> Shapes:
    """Eight heads on four key-value heads, and eight experts of width 24."""
    fields = {
        "hidden_size": 32,
        "vocabulary_size": 256,
        "head_count": 8,
        "key_value_head_count": 4,
        "ffn_size": 64,
        "expert_count": 8,
        "expert_ffn_size": 24,
    }
    return Shapes(**{**fields, **changes})


def test_a_ring_needs_two_pieces_of_each_rank() -> None:
    ring = Strategy(context_parallel_degree=4)
    check_sequence(ring, 16)
    with pytest.raises(UnsupportedPlanError, match=r"job\.sequence_length.*got 12.*multiple of 8"):
        check_sequence(ring, 12)


def test_exchanged_heads_need_one_piece_of_each_rank() -> None:
    exchanged = Strategy(context_parallel_degree=4, context_parallel_kind="all_to_all")
    check_sequence(exchanged, 12)
    with pytest.raises(UnsupportedPlanError, match=r"job\.sequence_length.*got 10"):
        check_sequence(exchanged, 10)


def test_sequence_parallel_ranks_split_what_a_context_parallel_rank_has() -> None:
    strategy = Strategy(context_parallel_degree=2, tensor_parallel_degree=4, sequence_parallel=True)
    check_sequence(strategy, 16)
    with pytest.raises(UnsupportedPlanError, match=r"the 6 tokens.*multiple of 8"):
        check_sequence(strategy, 12)


@pytest.mark.parametrize(("tensor", "context"), [(1, 8), (2, 4), (2, 2)])
def test_ranks_may_be_more_than_key_value_heads_where_these_divide_them(
    tensor: int, context: int
) -> None:
    check_exchanged_heads(
        shapes(),
        Strategy(
            tensor_parallel_degree=tensor,
            context_parallel_degree=context,
            context_parallel_kind="all_to_all",
        ),
    )


def test_heads_that_cannot_be_exchanged_whole_are_refused_with_the_ring_as_remedy() -> None:
    strategy = Strategy(context_parallel_degree=3, context_parallel_kind="all_to_all")
    with pytest.raises(UnsupportedPlanError, match=r"context_parallel_degree.*got 3.*kind ring"):
        check_exchanged_heads(shapes(), strategy)


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ({"expert_parallel_degree": 3, "data_parallel_degree": 3}, r"does not divide 8 experts"),
        ({"expert_parallel_degree": 4, "data_parallel_degree": 2}, r"the 2 ranks that can hold"),
        (
            {"tensor_parallel_degree": 16, "expert_tensor_parallel_degree": 16},
            r"expert_tensor_parallel_degree.*width 24.*got 16",
        ),
        (
            {"tensor_parallel_degree": 4, "expert_tensor_parallel_degree": 3},
            r"must divide tensor_parallel_degree 4",
        ),
    ],
)
def test_experts_that_do_not_fall_into_equal_parts_are_refused(
    strategy: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnsupportedPlanError, match=message):
        check_experts(shapes(), Strategy(**strategy))


def test_experts_may_be_split_over_some_of_the_tensor_ranks() -> None:
    """Four tensor ranks hold two halves of every expert, or of the experts of two ranks each."""
    halves = Strategy(tensor_parallel_degree=4, expert_tensor_parallel_degree=2)
    check_experts(shapes(), halves)
    check_experts(shapes(), halves.model_copy(update={"expert_parallel_degree": 2}))


def test_a_dense_model_has_no_experts_to_spread() -> None:
    dense = shapes(expert_count=0, expert_ffn_size=0)
    check_experts(dense, Strategy(tensor_parallel_degree=4))
    with pytest.raises(UnsupportedPlanError, match=r"routes no tokens to experts"):
        check_experts(dense, Strategy(expert_parallel_degree=2, data_parallel_degree=2))
