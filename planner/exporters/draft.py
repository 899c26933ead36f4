"""Draft: a plan's strategy on its way to what a target can express, and what that has cost.

Where a plan treats layers differently and the target cannot, all get the treatment that takes the
least memory, so that what fits goes on fitting; each such step says what it costs instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from itertools import groupby

from planner.errors import InputError
from planner.exporters.canonical import canonical, layer_groups
from planner.exporters.export import Export, ExportedFile
from planner.exporters.job_fields import job_losses
from planner.exporters.model_fields import (
    context_obstacle,
    model_losses,
    refuse_model,
    tensor_obstacle,
)
from planner.exporters.strategy_fields import STRATEGY_FIELDS, refused_fields, shown
from planner.exporters.strategy_fields import remedy as remedy_of
from planner.schema.job import Framework, Job
from planner.schema.plan import Plan
from planner.schema.strategy import (
    ActivationCheckpointing,
    ContextParallelKind,
    LayerGroup,
    Offload,
    Strategy,
)
from planner.units import counted

_STRENGTH = tuple(ActivationCheckpointing)
_FRAMEWORKS = {
    **{framework.value: framework for framework in Framework},
    "hf-trainer": Framework.ACCELERATE,
    "axolotl-deepspeed": Framework.LLAMA_FACTORY,
    "megatron-bridge": Framework.MEGATRON_LM,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A resolved strategy, the target's name, and the losses so far."""

    target: str
    plan: Plan
    strategy: Strategy
    losses: tuple[str, ...] = ()

    def losing(self, loss: str, strategy: Strategy | None = None) -> Draft:
        """Return the draft with one more loss, and the strategy that has it."""
        kept = self.strategy if strategy is None else strategy
        return replace(self, strategy=kept, losses=(*self.losses, loss))

    def saying(self, strategy: Strategy) -> Draft:
        """Return the draft with another strategy of the same meaning."""
        return replace(self, strategy=strategy)

    def exported(self, *files: ExportedFile) -> Export:
        """Return the files as the export, with what has been lost and what they say."""
        return Export(target=self.target, files=files, losses=self.losses, strategy=self.strategy)

    def comments(self, *lines: str) -> tuple[str, ...]:
        """Return the lines of a file's own comment: the given ones, and what is not as planned."""
        return (*lines, *(f"Not as planned: {loss}." for loss in self.losses))

    @property
    def recomputes_blocks(self) -> bool:
        """Return whether the first blocks are recomputed whole: all are, once the draft settled."""
        kept = next(layer_groups(self.strategy)).activation_checkpointing
        return kept is ActivationCheckpointing.FULL

    @property
    def overlaps_tensor_parallel(self) -> bool:
        """Return whether the job asks for collectives beside products, which need split rows."""
        split = self.strategy.sequence_parallel and self.strategy.tensor_parallel_degree > 1
        return split and self.plan.job.resolved.overlapped_tensor_parallel is True

    @property
    def shares_states(self) -> bool:
        """Return whether more than one rank has the same states and could shard them."""
        return self.strategy.shard_degree * self.strategy.context_parallel_degree > 1


def first_draft(plan: Plan, target: str) -> Draft:
    """Return the plan's own strategy in its canonical form, with stages left unplaced.

    Raises:
        InputError: if the target does not train the model or what the job does, or has not a
            field's value.
    """
    own, graph = canonical(plan.strategy), plan.model.resolved
    refuse_model(graph, target)
    stages = tuple(stage.model_copy(update={"device_group": None}) for stage in own.stages or ())
    draft = Draft(
        target=target,
        plan=plan,
        strategy=own.model_copy(update={"stages": stages}),
        losses=(*job_losses(plan.job.resolved, target), *model_losses(graph, target)),
    )
    for name, value, said in refused_fields(own, target):
        raise refusal(
            draft,
            field=name,
            value=shown(value),
            problem=said.problem,
            remedy=remedy_of(name, said),
        )
    _refuse_context(draft)
    degree = own.tensor_parallel_degree
    problem = tensor_obstacle(graph, target, degree)
    if problem is not None:
        raise refusal(
            draft,
            field="tensor_parallel_degree",
            value=degree,
            problem=problem,
            remedy="plan with --stack torch",
        )
    ranks = (own.stages or ())[: own.pipeline_parallel_degree]
    runs = [(name, len(list(run))) for name, run in groupby(stage.device_group for stage in ranks)]
    if len(runs) < 2:
        return draft
    order = ", then ".join(f"{name} ({counted(count, 'stage')})" for name, count in runs)
    return draft.losing(
        f"does not say on which devices a stage runs: give ranks to nodes in the order {order}"
    )


def _refuse_context(draft: Draft) -> None:
    """Refuse to split a sequence over ranks that do not attend as the model does."""
    strategy, graph = draft.strategy, draft.plan.model.resolved
    degree, kind = strategy.context_parallel_degree, strategy.context_parallel_kind
    problem = context_obstacle(graph, draft.target, kind) if degree > 1 else None
    if problem is None:
        return
    others = [
        one.value
        for one in ContextParallelKind
        if not STRATEGY_FIELDS[draft.target]["context_parallel_kind"].refuses(one)
        and context_obstacle(graph, draft.target, one) is None
    ]
    remedy = "plan with limits.context_parallel_degree 1"
    if others:
        remedy += f", or limits.context_parallel_kinds [{', '.join(others)}]"
    raise refusal(
        draft, field="context_parallel_degree", value=degree, problem=problem, remedy=remedy
    )


def refusal(draft: Draft, *, field: str, value: object, problem: str, remedy: str) -> InputError:
    """Return the error that the target cannot run the plan at all.

    Where the planner knows what the target can say, the remedy is also to plan for it.
    """
    framework = _FRAMEWORKS.get(draft.target)
    if framework not in (None, draft.plan.job.resolved.framework):
        remedy = f"{remedy}, or plan with --framework {framework}"
    return InputError(
        f"{problem}, so that {draft.target} cannot run the plan",
        field=f"{'job' if field in Job.model_fields else 'strategy'}.{field}",
        value=value,
        remedy=remedy,
    )


def with_everywhere(strategy: Strategy, **changes: object) -> Strategy:
    """Return the strategy with the same change of every layer group, and of the ends.

    The ends have no activations: they keep no checkpointing and offload none.
    """
    stages = tuple(
        stage.model_copy(
            update={"layers": tuple(g.model_copy(update=changes) for g in stage.layers)}
        )
        for stage in strategy.stages or ()
    )
    edge = {name: value for name, value in changes.items() if name == "zero_stage"}
    offload = changes.get("offload")
    if isinstance(offload, tuple):
        edge["offload"] = tuple(item for item in offload if item is not Offload.ACTIVATIONS)
    update: dict[str, object] = {"stages": stages}
    for name in ("embedding", "head"):
        own = getattr(strategy, name)
        update[name] = None if own is None else own.model_copy(update=edge)
    return canonical(strategy.model_copy(update=update))


def zero_stages(strategy: Strategy) -> frozenset[int]:
    """Return the ZeRO stages of layers and ends."""
    ends = [edge for edge in (strategy.embedding, strategy.head) if edge is not None]
    return frozenset([group.zero_stage for group in layer_groups(strategy)]) | {
        edge.zero_stage for edge in ends
    }


def offloads(strategy: Strategy) -> frozenset[Offload]:
    """Return what any layer or end offloads."""
    ends = [edge for edge in (strategy.embedding, strategy.head) if edge is not None]
    kept = [group.offload for group in layer_groups(strategy)] + [edge.offload for edge in ends]
    return frozenset(item for each in kept for item in each)


def block_count(strategy: Strategy, wanted: Iterable[LayerGroup] | None = None) -> int:
    """Return how many blocks the groups hold, of the whole strategy where none are given."""
    groups = layer_groups(strategy) if wanted is None else wanted
    return sum(group.block_count for group in groups)


def with_one_zero_stage(draft: Draft, allowed: Collection[int], *, why: str) -> Draft:
    """Return the draft with one ZeRO stage everywhere: the least allowed that shards as much.

    Raises:
        InputError: if the target shards less than the plan, which may then not fit.
    """
    used = zero_stages(draft.strategy)
    most = max(used)
    enough = [stage for stage in sorted(allowed) if stage >= most]
    if not enough:
        raise refusal(
            draft,
            field="zero_stage",
            value=most,
            problem=f"{why}; it shards no more than ZeRO stage {max(allowed)} does",
            remedy=f"plan with limits.zero_stages {sorted(allowed)}",
        )
    chosen = enough[0]
    if used == {chosen}:
        return draft
    other = [g for g in layer_groups(draft.strategy) if g.zero_stage != chosen]
    count, total = block_count(draft.strategy, other), block_count(draft.strategy)
    given = ", ".join(str(stage) for stage in sorted(used))
    return draft.losing(
        f"{why}: ZeRO stage {chosen} everywhere, where the plan has {given} (other on {count} of "
        f"{total} blocks and the ends); more communication, no more memory",
        with_everywhere(draft.strategy, zero_stage=chosen),
    )


def with_one_shard_group(draft: Draft, name: str) -> Draft:
    """Return the draft with states sharded over all data-parallel ranks, as `name` shards them."""
    strategy = draft.strategy
    if strategy.replicate_degree == 1 or zero_stages(strategy) == {0}:
        return draft
    data = strategy.shard_degree * strategy.replicate_degree
    return draft.losing(
        f"{name} shards over all {data} data-parallel ranks, where the plan does over "
        f"{strategy.shard_degree}: less memory, collectives of more ranks",
        strategy.model_copy(
            update={"data_parallel_shard_degree": data, "data_parallel_replicate_degree": 1}
        ),
    )


def with_one_checkpointing(draft: Draft, *, why: str) -> Draft:
    """Return the draft with one checkpointing everywhere: the strongest that the plan has."""
    used = {group.activation_checkpointing for group in layer_groups(draft.strategy)}
    if len(used) == 1:
        return draft
    chosen = max(used, key=_STRENGTH.index)
    other = [g for g in layer_groups(draft.strategy) if g.activation_checkpointing is not chosen]
    count, total = block_count(draft.strategy, other), block_count(draft.strategy)
    return draft.losing(
        f"{why}: {chosen.value} checkpointing everywhere, where the plan has less on {count} of "
        f"{total} blocks; more recomputing, no more memory",
        with_everywhere(draft.strategy, activation_checkpointing=chosen),
    )


def with_whole_blocks_checkpointed(draft: Draft, name: str) -> Draft:
    """Return the draft with all blocks checkpointed whole, or none: the target has no more."""
    draft = with_one_checkpointing(draft, why=f"{name} checkpoints all blocks or none")
    kept = next(layer_groups(draft.strategy)).activation_checkpointing
    if kept is not ActivationCheckpointing.SELECTIVE:
        return draft
    return draft.losing(
        f"{name} checkpoints no part of a block: all of it is recomputed, which takes less memory "
        "and more time",
        with_everywhere(draft.strategy, activation_checkpointing=ActivationCheckpointing.FULL),
    )


def with_offload_of_all(draft: Draft, item: Offload, *, why: str) -> Draft:
    """Return the draft with `item` offloaded by all layers if any does."""
    if item not in offloads(draft.strategy):
        return draft
    lacking = [group for group in layer_groups(draft.strategy) if item not in group.offload]
    ends = [e for e in (draft.strategy.embedding, draft.strategy.head) if e is not None]
    whole = with_offload(draft.strategy, item)
    bare_ends = item is not Offload.ACTIVATIONS and any(item not in e.offload for e in ends)
    if not lacking and not bare_ends:
        return draft.saying(whole)
    count, total = block_count(draft.strategy, lacking), block_count(draft.strategy)
    return draft.losing(
        f"{why}: {item.value} of all layers in host memory, where the plan keeps those of {count} "
        f"of {total} blocks or of the ends on the device; more transfers and host memory, no more "
        "device memory",
        whole,
    )


def with_offload(strategy: Strategy, item: Offload) -> Strategy:
    """Return the strategy with `item` offloaded by every layer, and by the ends if they can."""
    stages = tuple(
        stage.model_copy(
            update={
                "layers": tuple(
                    g.model_copy(update={"offload": tuple({*g.offload, item})})
                    for g in stage.layers
                )
            }
        )
        for stage in strategy.stages or ()
    )
    update: dict[str, object] = {"stages": stages}
    for name in ("embedding", "head"):
        edge = getattr(strategy, name)
        if edge is not None and item is not Offload.ACTIVATIONS:
            update[name] = edge.model_copy(update={"offload": tuple({*edge.offload, item})})
    return canonical(strategy.model_copy(update=update))


def with_all_states_offloaded(draft: Draft, name: str) -> Draft:
    """Return the draft with all model states sharded and offloaded if any layer offloads some.

    That is what `CPUOffloadPolicy` of torch's `fully_shard` does.
    """
    used = offloads(draft.strategy)
    if not used:
        return draft
    both = (Offload.OPTIMIZER, Offload.PARAMETERS)
    whole = with_everywhere(draft.strategy, zero_stage=3, offload=both)
    if whole == draft.strategy:
        return draft
    given = " and ".join(sorted(item.value for item in used))
    return draft.losing(
        f"{name} offloads optimizer and parameters of all layers together, sharded as in ZeRO "
        f"stage 3, where the plan offloads {given} of some: more transfers and host memory, no "
        "more device memory",
        whole,
    )


def with_experts_split(draft: Draft, name: str) -> Draft:
    """Return the draft with experts split like all else where there is tensor parallelism."""
    strategy = draft.strategy
    tensor = strategy.tensor_parallel_degree
    if strategy.expert_tensor_parallel_degree in {None, tensor}:
        return draft
    return draft.losing(
        f"{name} splits experts over the {tensor} tensor-parallel ranks, where the plan has them "
        "whole: less memory, more collectives",
        strategy.model_copy(update={"expert_tensor_parallel_degree": tensor}),
    )
