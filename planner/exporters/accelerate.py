"""Accelerate: a plan as the YAML file of `accelerate launch --config_file`.

Keys are those of Accelerate 1.15.0, `commands/config/config_args.py`. The file does not say the
micro-batch: the training program does, so that it stands in comments.
"""

from __future__ import annotations

from planner.exporters.draft import Draft, offloads, zero_stages
from planner.exporters.export import Export, ExportedFile
from planner.exporters.fully_sharded import (
    is_sharded,
    settled_fully_sharded,
    transformer_layer,
    with_late_reduction,
)
from planner.exporters.placement import placement
from planner.exporters.torchrun import PORT
from planner.exporters.yaml_lines import Fields, yaml_lines
from planner.schema.job import Precision
from planner.schema.plan import Plan
from planner.schema.strategy import Offload

MIXED_PRECISION = {
    Precision.BF16: "bf16",
    Precision.FP16: "fp16",
    Precision.FP32: "no",
    Precision.FP8: "fp8",
}


def export_accelerate(plan: Plan, target: str) -> Export:
    """Return the YAML file; machine_rank and main_process_ip are each machine's to set."""
    draft = with_late_reduction(settled_fully_sharded(plan, target))
    draft = _split_unprepared(_checkpointing_unsaid(draft))
    strategy, job = draft.strategy, plan.job.resolved
    lines = [
        f"# Plan {plan.id} for Accelerate 1.15.",
        *(f"# Not as planned: {loss}." for loss in draft.losses),
        f"# per_device_train_batch_size: {strategy.micro_batch_size}",
        f"# gradient_accumulation_steps: {strategy.micro_batch_count}",
        f"# gradient_checkpointing: {str(_is_checkpointed(draft)).lower()}",
        f"# sequence length: {job.sequence_length}",
        *yaml_lines(accelerate_fields(draft)),
    ]
    return Export(
        target=target,
        files=(ExportedFile(name="accelerate.yaml", text="\n".join(lines) + "\n"),),
        losses=draft.losses,
        strategy=strategy,
    )


def _is_checkpointed(draft: Draft) -> bool:
    return draft.recomputes_blocks and not is_sharded(draft)


def _checkpointing_unsaid(draft: Draft) -> Draft:
    """Say that plain replicas are checkpointed by the program, not by the file."""
    if not _is_checkpointed(draft):
        return draft
    return draft.losing(
        "the file does not switch checkpointing on: call the model's "
        "gradient_checkpointing_enable in the program"
    )


def _split_unprepared(draft: Draft) -> Draft:
    """Say with which transformers tensor parallelism does not run.

    Source: Accelerate 1.15.0, `accelerator.py`, `_prepare_tp`.
    """
    if draft.strategy.tensor_parallel_degree == 1:
        return draft
    return draft.losing(
        "Accelerate 1.15 prepares tensor-parallel models by a class that transformers 5.23 no "
        "longer has (ReplicateParallel): with that release export to hf-trainer"
    )


def accelerate_fields(draft: Draft) -> Fields:
    """Return the configuration, nested as the file has it."""
    place = placement(draft.plan)
    sharded = is_sharded(draft)
    ranks = draft.strategy.world_size
    several = "MULTI_GPU" if ranks > 1 else "NO"
    fields: Fields = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP" if sharded else several,
        "mixed_precision": MIXED_PRECISION[draft.plan.job.resolved.precision],
        "num_machines": place.node_count,
        "num_processes": ranks,
        "machine_rank": 0,
        "rdzv_backend": "static",
    }
    if place.node_count > 1:
        fields |= {"main_process_ip": "127.0.0.1", "main_process_port": PORT}
    if sharded:
        fields |= {"fsdp_config": _fsdp(draft), "parallelism_config": _parallelism(draft)}
    return fields


def _fsdp(draft: Draft) -> Fields:
    strategy = draft.strategy
    fields: Fields = {
        "fsdp_version": 2,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_reshard_after_forward": zero_stages(strategy) == {3},
        "fsdp_offload_params": Offload.PARAMETERS in offloads(strategy),
        "fsdp_activation_checkpointing": draft.recomputes_blocks,
        "fsdp_cpu_ram_efficient_loading": True,
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    }
    layer = transformer_layer(draft.plan)
    if layer is not None:
        fields["fsdp_transformer_layer_cls_to_wrap"] = layer
    return fields


def _parallelism(draft: Draft) -> Fields:
    strategy = draft.strategy
    return {
        "parallelism_config_dp_replicate_size": strategy.replicate_degree,
        "parallelism_config_dp_shard_size": strategy.shard_degree,
        "parallelism_config_tp_size": strategy.tensor_parallel_degree,
        "parallelism_config_cp_size": strategy.context_parallel_degree,
    }
