"""Sharable: whether sequences and heads fall into the parts that ranks are to have."""

from __future__ import annotations

from executor.errors import UnsupportedPlanError
from executor.models.declaration import Shapes
from planner.schema.strategy import ContextParallelKind, Strategy


def check_sequence(strategy: Strategy, length: int) -> None:
    """Return if sequences of `length` fall into equal parts for context and tensor ranks.

    A ring gives each rank two pieces, so that causal work is balanced.

    Raises:
        UnsupportedPlanError: naming the sequence's length.
    """
    tp, cp = strategy.tensor_parallel_degree, strategy.context_parallel_degree
    rings = strategy.context_parallel_kind is ContextParallelKind.RING and cp > 1
    pieces = 2 * cp if rings else cp
    if length % pieces:
        raise UnsupportedPlanError(
            f"context_parallel_degree {cp} ({strategy.context_parallel_kind.value}) needs {pieces} "
            "equal pieces of each sequence",
            field="job.sequence_length",
            value=length,
            remedy=f"use a multiple of {pieces}, or another context_parallel_degree",
        )
    own = length // cp
    if strategy.sequence_parallel and own % tp:
        raise UnsupportedPlanError(
            f"tensor_parallel_degree {tp} does not divide the {own} tokens that a rank has of a "
            "sequence",
            field="job.sequence_length",
            value=length,
            remedy=f"use a multiple of {tp * cp}, or sequence_parallel false",
        )


def check_exchanged_heads(shapes: Shapes, strategy: Strategy) -> None:
    """Return if each rank gets whole heads where context parallelism exchanges them.

    Raises:
        UnsupportedPlanError: naming the context-parallel degree.
    """
    tp, cp = strategy.tensor_parallel_degree, strategy.context_parallel_degree
    if cp == 1 or strategy.context_parallel_kind is not ContextParallelKind.ALL_TO_ALL:
        return
    heads, key_value_heads = shapes.head_count // tp, shapes.key_value_head_count // tp
    if heads % cp or (key_value_heads % cp and cp % key_value_heads):
        raise UnsupportedPlanError(
            f"exchanging heads cannot give each rank whole ones of the {heads} heads and "
            f"{key_value_heads} key-value heads that tensor_parallel_degree {tp} leaves",
            field="strategy.context_parallel_degree",
            value=cp,
            remedy="use context_parallel_kind ring, or a degree that divides both",
        )


def check_experts(shapes: Shapes, strategy: Strategy) -> None:
    """Return if the model's routed experts fall into equal parts for the ranks that hold them.

    Raises:
        UnsupportedPlanError: naming the expert degree that does not go.
    """
    expert, tp = strategy.expert_parallel_degree, strategy.tensor_parallel_degree
    split = strategy.expert_tensor_parallel_degree or tp
    if shapes.expert_count == 0:
        if expert > 1:
            raise _expert_refusal("the model routes no tokens to experts", expert, "use 1")
        return
    if shapes.expert_count % expert:
        remedy = f"use a divisor of {shapes.expert_count}"
        raise _expert_refusal(f"does not divide {shapes.expert_count} experts", expert, remedy)
    if tp % split or shapes.expert_ffn_size % split:
        raise UnsupportedPlanError(
            f"must divide tensor_parallel_degree {tp} and the experts' width "
            f"{shapes.expert_ffn_size}",
            field="strategy.expert_tensor_parallel_degree",
            value=split,
            remedy="use 1 to give tensor-parallel ranks different experts",
        )
    holders = tp // split * strategy.shard_degree * strategy.context_parallel_degree
    if holders % expert:
        problem = f"does not divide the {holders} ranks that can hold different experts"
        raise _expert_refusal(problem, expert, f"use a divisor of {holders}")
    sharding, here = holders // expert, shapes.expert_count // expert
    if here % sharding and shapes.hidden_size % sharding:
        raise _expert_refusal(
            f"leaves {here} experts and a width of {shapes.hidden_size} to be sharded over "
            f"{sharding} ranks, which divide neither",
            expert,
            f"use a degree that leaves a multiple of {sharding} experts",
        )


def _expert_refusal(problem: str, degree: int, remedy: str) -> UnsupportedPlanError:
    return UnsupportedPlanError(
        problem, field="strategy.expert_parallel_degree", value=degree, remedy=remedy
    )
