"""torchtitan: what of a plan its configuration can express, and what it does instead.

The rules are of torchtitan 0.3.0 and 0.2.2; each function names the file that it follows.
"""

from __future__ import annotations

from planner.exporters.canonical import shards_anything
from planner.exporters.decoder_stages import with_stages_that_it_has
from planner.exporters.draft import (
    Draft,
    first_draft,
    refusal,
    with_all_states_offloaded,
    with_everywhere,
    with_one_checkpointing,
    with_one_zero_stage,
    zero_stages,
)
from planner.schema.job import Precision
from planner.schema.plan import Plan
from planner.schema.strategy import ContextParallelKind

_RESHARDING = "torchtitan has one policy of resharding for all layers"


def settled_for_torchtitan(plan: Plan, target: str, *, legacy: bool) -> Draft:
    """Return what torchtitan can run of the plan, with what is lost; `legacy` is up to 0.2.2.

    Raises:
        InputError: if it can run nothing like it.
    """
    draft = with_stages_that_it_has(_precision(first_draft(plan, target)))
    draft = _experts(draft) if not legacy else _legacy_experts(draft)
    draft = _split_sequence(draft) if legacy else draft
    draft = _context(draft)
    draft = _offloaded(draft)
    draft = _sharded(draft)
    return with_one_checkpointing(draft, why="torchtitan has one policy of checkpointing")


def _precision(draft: Draft) -> Draft:
    """Keep: `mixed_precision_param` is bfloat16 or float32; FP8 is a converter of the model."""
    precision = draft.plan.job.resolved.precision
    if precision is Precision.FP16:
        raise refusal(
            draft,
            field="precision",
            value=precision.value,
            problem="torchtitan has no loss scale and no float16",
            remedy="plan with --precision bf16",
        )
    if precision is Precision.FP8:
        return draft.losing(
            "float8 products are a converter of the model's specification, which is yours: add "
            "Float8LinearConverter there"
        )
    return draft


def _experts(draft: Draft) -> Draft:
    """Keep: experts borrow the tensor-parallel ranks whole (`parallel_dims.py` of 0.3.0).

    With `expert_parallel_degree` 1 an expert is split like all else; above 1 it is split by none.
    """
    strategy = draft.strategy
    tensor, degree = strategy.tensor_parallel_degree, strategy.expert_parallel_degree
    split = strategy.expert_tensor_parallel_degree or tensor
    if tensor == 1 or not _has_experts(draft) or split == (tensor if degree == 1 else 1):
        return draft
    wanted = degree * split if degree > 1 else 1
    given = f"expert-parallel {degree} x expert-tensor-parallel {split}"
    if _expert_count(draft) % wanted:
        raise refusal(
            draft,
            field="expert_tensor_parallel_degree",
            value=split,
            problem=f"torchtitan splits no expert so, and {wanted} ranks cannot share the "
            "experts evenly",
            remedy="plan with limits.expert_tensor_parallel_degree 1",
        )
    how = f"spread over {wanted} ranks" if degree > 1 else f"split over {tensor} ranks"
    return draft.losing(
        f"torchtitan has no expert-tensor parallelism like the plan's: experts are {how}, where "
        f"the plan has {given}; no more memory, other collectives",
        strategy.model_copy(
            update={
                "expert_parallel_degree": wanted,
                "expert_tensor_parallel_degree": tensor if degree == 1 else 1,
            }
        ),
    )


def _legacy_experts(draft: Draft) -> Draft:
    """Keep: `expert_tensor_parallel_degree` is 1 or the tensor-parallel degree (0.2.2)."""
    strategy = draft.strategy
    split = strategy.expert_tensor_parallel_degree or strategy.tensor_parallel_degree
    if 1 < split < strategy.tensor_parallel_degree:
        return _experts(draft)
    lone = strategy.expert_parallel_degree == 1 and split != strategy.tensor_parallel_degree
    if not lone or not _has_experts(draft):
        return draft
    return draft.losing(
        "torchtitan splits experts over tensor-parallel ranks where there is no expert "
        "parallelism; less memory, more collectives",
        strategy.model_copy(
            update={"expert_tensor_parallel_degree": strategy.tensor_parallel_degree}
        ),
    )


def _has_experts(draft: Draft) -> bool:
    return _expert_count(draft) > 1


def _expert_count(draft: Draft) -> int:
    counts = [
        run.block.feed_forward.expert_count
        for run in draft.plan.model.resolved.runs
        if run.block.feed_forward.kind == "mixture"
    ]
    return min(counts, default=1)


def _split_sequence(draft: Draft) -> Draft:
    """Keep: tensor parallelism always splits the sequence up to 0.2.2 (`parallelize.py`)."""
    strategy = draft.strategy
    if strategy.tensor_parallel_degree == 1 or strategy.sequence_parallel:
        return draft
    return draft.losing(
        "torchtitan 0.2 splits the sequence wherever there is tensor parallelism: less memory",
        strategy.model_copy(update={"sequence_parallel": True}),
    )


def _context(draft: Draft) -> Draft:
    """Keep: keys and values travel (`context_parallel.py`); heads are never exchanged."""
    strategy = draft.strategy
    degree, length = strategy.context_parallel_degree, draft.plan.job.resolved.sequence_length or 1
    if degree == 1 or strategy.context_parallel_kind is ContextParallelKind.RING:
        return draft
    if length % (2 * degree):
        raise refusal(
            draft,
            field="context_parallel_kind",
            value=strategy.context_parallel_kind.value,
            problem=f"torchtitan exchanges no heads, and twice {degree} does not divide the "
            f"sequence of {length}",
            remedy="plan with limits.context_parallel_kinds [ring]",
        )
    return draft.losing(
        "torchtitan exchanges no heads: keys and values travel to all ranks of a sequence, which "
        "moves other amounts of data",
        strategy.model_copy(update={"context_parallel_kind": ContextParallelKind.RING}),
    )


def _offloaded(draft: Draft) -> Draft:
    """Keep: `enable_cpu_offload` moves parameters, gradients and optimizer together."""
    return with_all_states_offloaded(draft, "torchtitan")


def _sharded(draft: Draft) -> Draft:
    """Keep: parameters are resharded after forward everywhere or nowhere (`fsdp.py`).

    Gradients are reduced after each micro-batch, but of a pipeline's stage after the last one.
    """
    strategy = draft.strategy
    if not shards_anything(strategy) and strategy.context_parallel_degree == 1:
        return draft
    if not draft.shares_states:
        return draft
    if strategy.pipeline_parallel_degree > 1:
        return _sharded_stages(draft)
    draft = with_one_zero_stage(draft, (1, 2, 3), why=_RESHARDING)
    if zero_stages(draft.strategy) == {1}:
        whole = with_everywhere(draft.strategy, zero_stage=2)
        if (draft.strategy.micro_batch_count or 1) == 1:
            return draft.saying(whole)
        return draft.losing(
            "torchtitan reduces gradients after every micro-batch, where the plan does after the "
            "last: less memory, more communication",
            whole,
        )
    return draft


def _sharded_stages(draft: Draft) -> Draft:
    used = zero_stages(draft.strategy)
    if max(used) < 2:
        return with_one_zero_stage(draft, (1,), why=_RESHARDING)
    chosen = 3 if max(used) == 3 else 1
    words = f"ZeRO stage {chosen} with whole gradients" if chosen == 3 else "ZeRO stage 1"
    return draft.losing(
        "torchtitan keeps the gradients of a pipeline's stage whole until its last micro-batch: "
        f"{words}, which takes more memory than planned",
        with_everywhere(draft.strategy, zero_stage=chosen),
    )
