"""Canonical strategies: of all that say the same, one, so that two can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner.schema.strategy import EdgeChoice, LayerGroup, Offload, Stage, Strategy


def canonical(strategy: Strategy) -> Strategy:
    """Return the resolved `strategy` in its one canonical form.

    Neighbouring groups that are treated alike are one. Without tensor parallelism there is no
    sequence to split. Where model states are shared by one rank (shard x context degree 1), their
    ZeRO stage says nothing. Where no state of any layer is sharded, a shard group is replicas, but
    experts are spread over shard groups: with these, replicas are a shard group.
    """
    shared = strategy.shard_degree * strategy.context_parallel_degree
    stages = tuple(_merged(stage, lone=shared == 1) for stage in strategy.stages or ())
    update: dict[str, object] = {
        "stages": stages,
        "embedding": _edge(strategy.embedding, lone=shared == 1),
        "head": _edge(strategy.head, lone=shared == 1),
    }
    if strategy.tensor_parallel_degree == 1:
        update["sequence_parallel"] = False
    whole = strategy.model_copy(update=update)
    return whole if shards_states(whole) else _unsharded(whole)


def shards_anything(strategy: Strategy) -> bool:
    """Return whether any layer's states are sharded, or experts need the shard group."""
    return shards_states(strategy) or strategy.expert_parallel_degree > 1


def shards_states(strategy: Strategy) -> bool:
    """Return whether any layer's states, or an end's, are sharded."""
    zero = [group.zero_stage for group in layer_groups(strategy)]
    zero += [edge.zero_stage for edge in (strategy.embedding, strategy.head) if edge is not None]
    return any(zero)


def layer_groups(strategy: Strategy) -> Iterator[LayerGroup]:
    """Yield the layer groups of all stages."""
    for stage in strategy.stages or ():
        yield from stage.layers


def _unsharded(strategy: Strategy) -> Strategy:
    data = strategy.shard_degree * strategy.replicate_degree
    shard = data if strategy.expert_parallel_degree > 1 else 1
    return strategy.model_copy(
        update={
            "data_parallel_shard_degree": shard,
            "data_parallel_replicate_degree": data // shard,
        }
    )


def _merged(stage: Stage, *, lone: bool) -> Stage:
    groups: list[LayerGroup] = []
    for given in stage.layers:
        update: dict[str, object] = {"offload": _ordered(given.offload)}
        if lone and Offload.PARAMETERS not in given.offload:
            update["zero_stage"] = 0
        group = given.model_copy(update=update)
        if groups and _alike(groups[-1], group):
            count = groups[-1].block_count + group.block_count
            groups[-1] = groups[-1].model_copy(update={"block_count": count})
        else:
            groups.append(group)
    return stage.model_copy(update={"layers": tuple(groups)})


def _edge(edge: EdgeChoice | None, *, lone: bool) -> EdgeChoice | None:
    if edge is None:
        return None
    update: dict[str, object] = {"offload": _ordered(edge.offload)}
    if lone and Offload.PARAMETERS not in edge.offload:
        update["zero_stage"] = 0
    return edge.model_copy(update=update)


def _ordered(offload: Sequence[Offload]) -> tuple[Offload, ...]:
    return tuple(item for item in Offload if item in offload)


def _alike(one: LayerGroup, other: LayerGroup) -> bool:
    return (one.zero_stage, one.activation_checkpointing, one.offload) == (
        other.zero_stage,
        other.activation_checkpointing,
        other.offload,
    )
