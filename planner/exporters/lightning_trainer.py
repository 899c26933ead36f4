"""Lightning's Trainer: a plan as a Python module whose function builds it.

Names are those of Lightning 2.6, `pytorch/trainer/trainer.py` and `pytorch/strategies/fsdp.py`,
which clips no norms of sharded gradients (`plugins/precision/fsdp.py`). The micro-batch is its
loader's, which the module builds as well. What is split by hand, tensor parallelism above all, is
of `meshwright.integrations.lightning`.
"""

from __future__ import annotations

from planner.exporters.canonical import layer_groups
from planner.exporters.draft import (
    Draft,
    first_draft,
    offloads,
    refusal,
    with_all_states_offloaded,
    with_one_zero_stage,
    with_whole_blocks_checkpointed,
    zero_stages,
)
from planner.exporters.export import Export, ExportedFile
from planner.exporters.fully_sharded import is_sharded
from planner.exporters.placement import placement
from planner.schema.job import Precision
from planner.schema.plan import Plan
from planner.schema.strategy import ActivationCheckpointing, Offload

_PRECISION = {
    Precision.BF16: "bf16-mixed",
    Precision.FP16: "16-mixed",
    Precision.FP32: "32-true",
}


def export_lightning(plan: Plan, target: str) -> Export:
    """Return the module, whose `planned_trainer` and `planned_loader` a script calls."""
    draft = _settled(plan, target)
    return draft.exported(ExportedFile(name="planned_lightning.py", text=_module(draft)))


def _settled(plan: Plan, target: str) -> Draft:
    draft = first_draft(plan, target)
    if plan.job.resolved.precision not in _PRECISION:
        raise refusal(
            draft,
            field="precision",
            value=plan.job.resolved.precision.value,
            problem="Lightning's mixed precision has no 8 bits",
            remedy="plan in bf16",
        )
    draft = with_all_states_offloaded(draft, "Lightning")
    return _checkpointed(_in_one_group(draft))


def _in_one_group(draft: Draft) -> Draft:
    """Keep: `FSDPStrategy` shards over all ranks, or in ZeRO 3 within each node."""
    if not is_sharded(draft) or draft.strategy.world_size == 1:
        return draft
    strategy, place = draft.strategy, placement(draft.plan)
    groups = strategy.replicate_degree, strategy.shard_degree
    hybrid = strategy.replicate_degree > 1 and groups == (place.node_count, place.devices_per_node)
    if strategy.replicate_degree > 1 and not hybrid:
        data = strategy.shard_degree * strategy.replicate_degree
        draft = draft.losing(
            f"FSDPStrategy shards over all {data} ranks, where the plan does over "
            f"{strategy.shard_degree}: less memory, collectives of more ranks",
            strategy.model_copy(
                update={"data_parallel_shard_degree": data, "data_parallel_replicate_degree": 1}
            ),
        )
    stages = (3,) if hybrid else (2, 3)
    return with_one_zero_stage(draft, stages, why="FSDPStrategy shards all layers alike")


def _checkpointed(draft: Draft) -> Draft:
    """Keep: `activation_checkpointing_policy` wraps all blocks, of sharded models alone."""
    draft = with_whole_blocks_checkpointed(draft, "Lightning")
    kept = next(layer_groups(draft.strategy)).activation_checkpointing
    if kept is ActivationCheckpointing.NONE or is_sharded(draft):
        return draft
    raise refusal(
        draft,
        field="activation_checkpointing",
        value=kept.value,
        problem="Lightning checkpoints nothing of plain replicas",
        remedy="plan with limits.zero_stages [2, 3], or limits.activation_checkpointing [none]",
    )


def _module(draft: Draft) -> str:
    plan, sharded = draft.plan, is_sharded(draft)
    strategy = "strategy" if sharded else f'"{_replicas(draft)}"'
    imports = "from torch.utils.data import DataLoader, Dataset"
    if sharded:
        imports = f"from lightning.pytorch.strategies import FSDPStrategy\n{imports}"
    lines = [
        '"""Trainer and loader of a plan.',
        "",
        *draft.comments(f"Plan {plan.id} for Lightning 2.6."),
        '"""',
        "",
        "import lightning",
        imports,
        "",
        "",
        "def planned_trainer(block, **others):",
        '    """Return the planned Trainer; `block` is the class of the model\'s blocks."""',
        *(_strategy(draft) if sharded else ()),
        "    return lightning.Trainer(",
        *(f"        {name}={value!r}," for name, value in _arguments(draft).items()),
        f"        strategy={strategy},",
        "        **others,",
        "    )",
        "",
        "",
        "def planned_loader(rows: Dataset) -> DataLoader:",
        '    """Return a loader of micro-batches."""',
        f"    return DataLoader(rows, batch_size={draft.strategy.micro_batch_size}, shuffle=True)",
    ]
    return "\n".join(lines) + "\n"


def _replicas(draft: Draft) -> str:
    return "ddp" if draft.strategy.world_size > 1 else "auto"


def _arguments(draft: Draft) -> dict[str, object]:
    place = placement(draft.plan)
    return {
        "devices": place.devices_per_node,
        "num_nodes": place.node_count,
        "precision": _PRECISION[draft.plan.job.resolved.precision],
        "accumulate_grad_batches": draft.strategy.micro_batch_count,
    }


def _strategy(draft: Draft) -> list[str]:
    """Return the lines that build the strategy; on a lone rank it only offloads."""
    strategy = draft.strategy
    name = "SHARD_GRAD_OP" if max(zero_stages(strategy)) == 2 else "FULL_SHARD"
    name = "HYBRID_SHARD" if strategy.replicate_degree > 1 else name
    policy = ["        activation_checkpointing_policy={block},"] if draft.recomputes_blocks else []
    return [
        "    strategy = FSDPStrategy(",
        f'        sharding_strategy="{name}",',
        f"        cpu_offload={Offload.PARAMETERS in offloads(strategy)},",
        "        auto_wrap_policy={block},",
        *policy,
        "    )",
    ]
