"""Megatron: what of a plan its arguments can express, and what they do instead.

The rules are of `megatron/training/arguments.py` (`validate_args`) and
`megatron/core/transformer/transformer_config.py` (`__post_init__`) of Megatron-LM 0.19.2; each
function names what it keeps.
"""

from __future__ import annotations

from planner.exporters.blocks import with_blocks
from planner.exporters.canonical import layer_groups
from planner.exporters.decoder_stages import with_stages_that_it_has
from planner.exporters.draft import (
    Draft,
    block_count,
    first_draft,
    offloads,
    refusal,
    with_everywhere,
    with_offload_of_all,
    with_one_checkpointing,
    with_one_zero_stage,
    zero_stages,
)
from planner.schema.job import Optimizer
from planner.schema.plan import Plan
from planner.schema.strategy import (
    ActivationCheckpointing,
    LayerGroup,
    Offload,
    PipelineSchedule,
    Strategy,
)

_FULL = ActivationCheckpointing.FULL
_NONE = ActivationCheckpointing.NONE


def settled_for_megatron(plan: Plan, target: str) -> Draft:
    """Return what Megatron can run of the plan, with what is lost.

    Raises:
        InputError: if it can run nothing like it.
    """
    draft = with_stages_that_it_has(first_draft(plan, target))
    draft = _scheduled(draft)
    draft = _sequence_of_experts(draft)
    draft = _sharded(_updated(draft))
    draft = _checkpointed(draft)
    return _offloaded(draft)


def _scheduled(draft: Draft) -> Draft:
    """Keep: `forward_backward_pipelining_with(out)_interleaving` are the only schedules."""
    strategy = draft.strategy
    gpipe = strategy.pipeline_schedule is PipelineSchedule.GPIPE
    if strategy.pipeline_parallel_degree == 1 or not gpipe:
        return _whole_rounds(draft)
    return draft.losing(
        "Megatron has no gpipe schedule: 1f1b instead, which is as long and holds fewer "
        "micro-batches",
        strategy.model_copy(update={"pipeline_schedule": PipelineSchedule.ONE_F_ONE_B}),
    )


def _updated(draft: Draft) -> Draft:
    """Keep: `distrib_optimizer.py` takes Adam, and what has states to be made up front."""
    if draft.plan.job.resolved.optimizer is not Optimizer.SGD:
        return draft
    stages, offloaded = (
        set(zero_stages(draft.strategy)),
        Offload.OPTIMIZER in offloads(draft.strategy),
    )
    if offloaded or (draft.shares_states and stages != {0}):
        raise refusal(
            draft,
            field="zero_stage",
            value=max(stages),
            problem="Megatron's distributed optimizer does not take SGD",
            remedy="plan with --framework megatron-lm, or with adamw",
        )
    return draft


def _whole_rounds(draft: Draft) -> Draft:
    """Keep: interleaving wants a multiple of the stages, of `schedules.py`."""
    strategy = draft.strategy
    count, degree = strategy.micro_batch_count or 1, strategy.pipeline_parallel_degree
    interleaved = strategy.pipeline_schedule is PipelineSchedule.INTERLEAVED
    if interleaved and degree > 1 and count % degree:
        raise refusal(
            draft,
            field="micro_batch_count",
            value=count,
            problem=f"Megatron interleaves a multiple of the {degree} stages",
            remedy="plan with --stack megatron",
        )
    return draft


def _sequence_of_experts(draft: Draft) -> Draft:
    """Keep: mixtures under tensor parallelism need sequence parallelism (`validate_args`)."""
    strategy = draft.strategy
    experts = any(
        run.block.feed_forward.kind == "mixture" for run in draft.plan.model.resolved.runs
    )
    if strategy.sequence_parallel or strategy.tensor_parallel_degree == 1 or not experts:
        return draft
    return draft.losing(
        "Megatron splits the sequence of a mixture of experts under tensor parallelism: "
        "--sequence-parallel is on, which takes less memory and as much communication",
        strategy.model_copy(update={"sequence_parallel": True}),
    )


def _sharded(draft: Draft) -> Draft:
    """Keep: the distributed optimizer is ZeRO 1, Megatron-FSDP 2 and 3; both hold for all layers.

    Megatron-FSDP is not documented with pipelines, and its arguments do not refuse them.
    """
    if not draft.shares_states:
        return draft
    why = "Megatron shards model states of all layers alike"
    draft = with_one_zero_stage(draft, (0, 1, 2, 3), why=why)
    (stage,) = zero_stages(draft.strategy)
    if stage < 2 or draft.strategy.pipeline_parallel_degree == 1:
        return draft
    raise refusal(
        draft,
        field="zero_stage",
        value=stage,
        problem="Megatron-FSDP shards gradients and parameters without pipelines only",
        remedy="plan with limits.zero_stages [0, 1] and --stack megatron",
    )


def _checkpointed(draft: Draft) -> Draft:
    """Keep: one granularity; `full` by `block` takes the first blocks of every virtual stage."""
    used = {group.activation_checkpointing for group in layer_groups(draft.strategy)}
    if _FULL not in used:
        draft = with_one_checkpointing(draft, why="Megatron has one granularity of recomputing")
        return _selective(draft)
    if used == {_FULL}:
        return _layer_by_layer(draft)
    if _counts_other_layers(draft):
        return _layer_by_layer(
            with_one_checkpointing(draft, why="Megatron counts the decoder's layers alone")
        )
    return _first_blocks(draft)


def _counts_other_layers(draft: Draft) -> bool:
    """Return whether numbers of layers mean others to Megatron than the plan's blocks."""
    graph = draft.plan.model.resolved
    return graph.tower_block_count > 0 or graph.is_hybrid


def _layer_by_layer(draft: Draft) -> Draft:
    graph = draft.plan.model.resolved
    if not graph.is_hybrid:
        return draft
    return draft.losing(
        f"Megatron keeps the input of each of {graph.decoder_layer_count} layers, mixers and "
        f"feed-forwards alike, where the plan does of {graph.block_count} blocks: more memory"
    )


def _selective(draft: Draft) -> Draft:
    group = next(layer_groups(draft.strategy))
    if group.activation_checkpointing is not ActivationCheckpointing.SELECTIVE:
        return draft
    return draft.losing(
        "Megatron recomputes attention's core, norms and the feed-forward whole, where the plan "
        "keeps every second matrix product: somewhat more recomputing, less memory"
    )


def _first_blocks(draft: Draft) -> Draft:
    """Return the draft with as many first blocks of each virtual stage in full as the most."""
    strategy = draft.strategy
    most = max(
        block_count(strategy, [g for g in s.layers if g.activation_checkpointing is not _NONE])
        for s in strategy.stages or ()
    )
    settled = with_blocks(
        strategy,
        lambda place, _: {"activation_checkpointing": _FULL if place < most else _NONE},
    )
    if settled == strategy:
        return draft
    more = _full_count(settled) - _full_count(strategy)
    return draft.losing(
        f"Megatron recomputes the first {most} blocks of every virtual stage in full, {more} "
        "blocks more than the plan and none selectively: more recomputing, no more memory",
        settled,
    )


def _full_count(strategy: Strategy) -> int:
    full = [g for g in layer_groups(strategy) if g.activation_checkpointing is _FULL]
    return block_count(strategy, full)


def _offloaded(draft: Draft) -> Draft:
    """Keep: the optimizer whole or not; activations without pipelines and recomputing."""
    draft = with_offload_of_all(
        draft, Offload.OPTIMIZER, why="Megatron's optimizer is offloaded as a whole"
    )
    if Offload.OPTIMIZER in offloads(draft.strategy):
        draft = _distributed_optimizer(draft)
    if Offload.ACTIVATIONS in offloads(draft.strategy):
        return _activations(draft)
    return draft


def _distributed_optimizer(draft: Draft) -> Draft:
    """Keep: `--use-precision-aware-optimizer`, of the offload, wants the distributed optimizer."""
    strategy = draft.strategy
    data = strategy.shard_degree * strategy.replicate_degree
    if data * strategy.context_parallel_degree == 1 or zero_stages(strategy) != {0}:
        return draft
    group = {"data_parallel_shard_degree": data, "data_parallel_replicate_degree": 1}
    return draft.losing(
        "Megatron offloads its distributed optimizer only: ZeRO stage 1, less memory",
        with_everywhere(strategy.model_copy(update=group), zero_stage=1),
    )


def _activations(draft: Draft) -> Draft:
    """Keep: `--cpu-offloading-num-layers` of the first layers, fewer than all."""
    strategy = draft.strategy
    groups = list(layer_groups(strategy))
    recomputes = any(g.activation_checkpointing is not _NONE for g in groups)
    total = block_count(strategy)
    kept = [g for g in groups if Offload.ACTIVATIONS in g.offload]
    count = block_count(strategy, kept)
    problem = None
    if strategy.pipeline_parallel_degree > 1:
        problem = "Megatron offloads no activations under a pipeline"
    elif recomputes:
        problem = "Megatron offloads no activations where it recomputes"
    elif _counts_other_layers(draft):
        problem = "Megatron offloads the activations of so many decoder layers, not of towers' or "
        problem += "hybrids' blocks"
    elif count == total:
        problem = "Megatron keeps the activations of one layer on the device at least"
    if problem is not None:
        raise refusal(
            draft,
            field="offload",
            value=Offload.ACTIVATIONS.value,
            problem=problem,
            remedy="plan with limits.offload [optimizer] or []",
        )
    settled = with_blocks(strategy, lambda place, group: _first_offloaded(place, group, count))
    if settled == strategy:
        return draft
    return draft.losing(
        f"Megatron offloads the activations of the first {count} blocks, not of those that the "
        "plan names, which are as many",
        settled,
    )


def _first_offloaded(place: int, group: LayerGroup, count: int) -> dict[str, object]:
    rest = [item for item in group.offload if item is not Offload.ACTIVATIONS]
    return {"offload": (*rest, *([Offload.ACTIVATIONS] if place < count else []))}
