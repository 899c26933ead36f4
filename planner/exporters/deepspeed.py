"""DeepSpeed: a plan as its JSON configuration.

Keys are those of DeepSpeed 0.19.8, `deepspeed/runtime/config.py` and `zero/config.py`. Pipelines
and experts are made in the program, not in the configuration.
"""

from __future__ import annotations

import json

from planner.exporters.canonical import layer_groups
from planner.exporters.draft import (
    Draft,
    block_count,
    first_draft,
    offloads,
    refusal,
    with_everywhere,
    with_experts_split,
    with_offload_of_all,
    with_one_shard_group,
    with_one_zero_stage,
    with_whole_blocks_checkpointed,
    zero_stages,
)
from planner.exporters.export import Export, ExportedFile
from planner.exporters.precision import without_float8
from planner.schema.job import OffloadStore, Precision
from planner.schema.plan import Plan
from planner.schema.strategy import ActivationCheckpointing, Offload

_NVME_PATH = "/local_nvme"


def export_deepspeed(plan: Plan, target: str) -> Export:
    """Return the JSON file for `--deepspeed_config`."""
    draft = settled_for_deepspeed(plan, target)
    text = json.dumps(deepspeed_fields(draft), indent=2) + "\n"
    return Export(
        target=target,
        files=(ExportedFile(name="deepspeed.json", text=text),),
        losses=draft.losses,
        strategy=draft.strategy,
    )


def settled_for_deepspeed(plan: Plan, target: str) -> Draft:
    """Return what DeepSpeed's configuration can express of the plan, with what is lost.

    Raises:
        InputError: if it can express nothing like it.
    """
    draft = without_float8(first_draft(plan, target), "DeepSpeed's configuration")
    return _checkpointing_unsaid(_settled(draft))


def settled_for_trainers_deepspeed(plan: Plan, target: str) -> Draft:
    """Return what DeepSpeed can run of the plan within a trainer, which checkpoints by itself.

    Raises:
        InputError: if it can run nothing like it.
    """
    return _settled(without_float8(first_draft(plan, target), "DeepSpeed's configuration"))


def _settled(draft: Draft) -> Draft:
    draft = with_one_shard_group(with_experts_split(draft, "DeepSpeed"), "DeepSpeed")
    draft = _offloaded(with_whole_blocks_checkpointed(draft, "DeepSpeed"))
    if draft.shares_states:
        draft = with_one_zero_stage(draft, (0, 1, 2, 3), why="DeepSpeed has one ZeRO stage")
    return _tensor_parallel(draft)


def _tensor_parallel(draft: Draft) -> Draft:
    """Keep: AutoTP runs with ZeRO 0, 1 and 2, and without exchanged heads."""
    strategy = draft.strategy
    if strategy.tensor_parallel_degree == 1:
        return draft
    if max(zero_stages(strategy)) == 3:
        field, value = "zero_stage", 3
    elif strategy.context_parallel_degree > 1:
        field, value = "context_parallel_degree", strategy.context_parallel_degree
    else:
        return draft
    raise refusal(
        draft,
        field=field,
        value=value,
        problem="DeepSpeed's tensor parallelism does not go with it",
        remedy="plan with limits.tensor_parallel_degree 1",
    )


def _checkpointing_unsaid(draft: Draft) -> Draft:
    """Say that the program checkpoints, not the file."""
    kept = next(layer_groups(draft.strategy)).activation_checkpointing
    if kept is ActivationCheckpointing.NONE:
        return draft
    return draft.losing(
        "the configuration does not switch checkpointing on: call "
        "deepspeed.checkpointing.checkpoint (or the model's gradient_checkpointing_enable) around "
        "every block"
    )


def _offloaded(draft: Draft) -> Draft:
    """Keep: the optimizer from stage 1 on, parameters in stage 3, activations if checkpointed."""
    for item in Offload:
        draft = with_offload_of_all(draft, item, why="DeepSpeed offloads of all layers or none")
    kept = offloads(draft.strategy)
    if Offload.OPTIMIZER in kept:
        draft = _sharded_optimizer(draft)
    if Offload.ACTIVATIONS in kept and not draft.recomputes_blocks:
        raise refusal(
            draft,
            field="offload",
            value=Offload.ACTIVATIONS.value,
            problem="DeepSpeed moves only the inputs of checkpointed blocks to the host",
            remedy="plan with limits.activation_checkpointing [full], or without activations in "
            "limits.offload",
        )
    return draft


def _sharded_optimizer(draft: Draft) -> Draft:
    """Return the draft with the optimizer sharded, as DeepSpeed has it to offload it."""
    strategy = draft.strategy
    data = strategy.shard_degree * strategy.replicate_degree
    if data * strategy.context_parallel_degree == 1 or 0 not in zero_stages(strategy):
        return draft
    least = max(1, *zero_stages(strategy))
    group = {"data_parallel_shard_degree": data, "data_parallel_replicate_degree": 1}
    return draft.losing(
        f"DeepSpeed offloads a sharded optimizer only: ZeRO stage {least}, less memory",
        with_everywhere(strategy.model_copy(update=group), zero_stage=least),
    )


def deepspeed_fields(draft: Draft) -> dict[str, object]:
    """Return the configuration, without what it has by default."""
    strategy, job = draft.strategy, draft.plan.job.resolved
    fields: dict[str, object] = {
        "train_batch_size": job.global_batch_size,
        "train_micro_batch_size_per_gpu": strategy.micro_batch_size,
        "gradient_accumulation_steps": strategy.micro_batch_count,
        "zero_optimization": _zero(draft),
    }
    if job.precision is not Precision.FP32:
        name = "fp16" if job.precision is Precision.FP16 else "bf16"
        fields[name] = {"enabled": True}
    if job.prices_clipping:
        fields["gradient_clipping"] = 1.0
    if strategy.tensor_parallel_degree > 1:
        fields["tensor_parallel"] = {"autotp_size": strategy.tensor_parallel_degree}
    if strategy.context_parallel_degree > 1:
        fields["sequence_parallel_size"] = strategy.context_parallel_degree
    if draft.recomputes_blocks:
        fields["activation_checkpointing"] = {
            "number_checkpoints": block_count(strategy),
            "cpu_checkpointing": Offload.ACTIVATIONS in offloads(strategy),
        }
    return fields


def _zero(draft: Draft) -> dict[str, object]:
    strategy = draft.strategy
    kept = offloads(strategy)
    stage = max(zero_stages(strategy))  # several on a lone rank alone, which shards nothing
    if Offload.OPTIMIZER in kept:
        stage = max(stage, 1)  # which it needs to offload
    fields: dict[str, object] = {"stage": stage}
    if stage:
        own = draft.plan.job.resolved.overlapped_gradients
        # What is left open is as DeepSpeed has it by stage, and as it is priced.
        overlaps = stage == 3 if own is None else own
        fields |= {"overlap_comm": overlaps, "contiguous_gradients": True}
    if Offload.OPTIMIZER in kept:
        fields["offload_optimizer"] = _store(draft)
    if Offload.PARAMETERS in kept:
        fields["offload_param"] = _store(draft)
    return fields


def _store(draft: Draft) -> dict[str, object]:
    if draft.plan.job.resolved.offload_to is OffloadStore.NVME:
        return {"device": "nvme", "nvme_path": _NVME_PATH}
    return {"device": "cpu", "pin_memory": True}
