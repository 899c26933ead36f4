"""Axolotl: a plan as the YAML of `axolotl train`, sharded by torch or by DeepSpeed.

Keys are those of Axolotl 0.18, `utils/schemas/config.py`, `fsdp.py` and `peft.py`; how axes go
together is of `docs/nd_parallelism.qmd`. Its weights, and with them gradients and states, have the
number format of its products but under DeepSpeed (`utils/config`, `resolve_dtype`).
"""

from __future__ import annotations

import json

from planner.exporters.adapter_fields import axolotl_adapters
from planner.exporters.deepspeed import deepspeed_fields, settled_for_trainers_deepspeed
from planner.exporters.draft import Draft, offloads, zero_stages
from planner.exporters.export import Export, ExportedFile
from planner.exporters.fully_sharded import (
    Sharder,
    is_sharded,
    settled_fully_sharded,
    transformer_layer,
    with_late_reduction,
)
from planner.exporters.job_fields import OPTIMIZERS
from planner.exporters.yaml_lines import Fields, yaml_text
from planner.schema.job import Precision
from planner.schema.model_kind import scores_sequences
from planner.schema.plan import Plan
from planner.schema.strategy import Offload

_SHARDER = Sharder(name="Axolotl")
_DEEPSPEED_FILE = "deepspeed.json"
_REWARD_MODEL: Fields = {
    "model_type": "AutoModelForSequenceClassification",
    "num_labels": 1,
    "reward_model": True,
}


def export_axolotl(plan: Plan, target: str) -> Export:
    """Return the YAML with its section of FSDP, to be completed with model, data and output."""
    draft = _in_one_format(with_late_reduction(settled_fully_sharded(plan, target, _SHARDER)))
    fields = _step(draft) | _sharding(draft)
    if plan.job.resolved.precision is Precision.FP8:
        fields["fp8"] = True
        if plan.job.resolved.gathered_in_8_bits:
            fields["fp8_enable_fsdp_float8_all_gather"] = True
    return draft.exported(_file(draft, fields))


def export_axolotl_deepspeed(plan: Plan, target: str) -> Export:
    """Return the YAML and the DeepSpeed configuration that it names."""
    draft = settled_for_trainers_deepspeed(plan, target)
    tensor = draft.strategy.tensor_parallel_degree
    fields = _step(draft) | {"gradient_checkpointing": draft.recomputes_blocks}
    fields |= {"tensor_parallel_size": tensor} if tensor > 1 else {}
    text = json.dumps(deepspeed_fields(draft), indent=2) + "\n"
    return draft.exported(
        _file(draft, fields | {"deepspeed": _DEEPSPEED_FILE}),
        ExportedFile(name=_DEEPSPEED_FILE, text=text),
    )


def _in_one_format(draft: Draft) -> Draft:
    """Say where states lie in 16 bits that the plan has in 32."""
    job = draft.plan.job.resolved
    if job.precision is Precision.FP32 or job.states_in_16_bits or job.adapters is not None:
        return draft
    return draft.losing(
        "Axolotl loads the model in the format of its products and keeps gradients and the "
        "optimizer's states in it: less memory than planned, and updates in 16 bits"
    )


def _file(draft: Draft, fields: Fields) -> ExportedFile:
    comments = draft.comments(
        f"Plan {draft.plan.id} for Axolotl 0.18: add datasets and output_dir, and set base_model."
    )
    return ExportedFile(name="axolotl.yaml", text=yaml_text(fields, comments))


def _step(draft: Draft) -> Fields:
    """Return batch, numbers, optimizer and what is trained."""
    strategy, job = draft.strategy, draft.plan.job.resolved
    names = OPTIMIZERS[draft.target]
    fields: Fields = {
        "base_model": draft.plan.model.resolved.name,
        "micro_batch_size": strategy.micro_batch_size,
        "gradient_accumulation_steps": strategy.micro_batch_count,
        "sequence_len": job.sequence_length,
        "bf16": job.precision in {Precision.BF16, Precision.FP8},
        "fp16": job.precision is Precision.FP16,
        **({"tf32": True} if job.tensor_float_32 else {}),
    }
    if job.optimizer in names:
        fields["optimizer"] = names[job.optimizer]
    if job.gradient_clipping is not None:
        fields["max_grad_norm"] = 1.0 if job.gradient_clipping else 0.0
    fields |= _REWARD_MODEL if scores_sequences(draft.plan.model.resolved) else {}
    return fields | (axolotl_adapters(job.adapters) if job.adapters is not None else {})


def _sharding(draft: Draft) -> Fields:
    """Return FSDP's section and the axes, or plain replicas."""
    strategy = draft.strategy
    if not is_sharded(draft):
        fields: Fields = {"gradient_checkpointing": draft.recomputes_blocks}
        replicas = strategy.replicate_degree
        return fields | ({"dp_replicate_size": replicas} if replicas > 1 else {})
    config: Fields = {
        "offload_params": Offload.PARAMETERS in offloads(strategy),
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "reshard_after_forward": zero_stages(strategy) == {3},
        "activation_checkpointing": draft.recomputes_blocks,
        "state_dict_type": "SHARDED_STATE_DICT",
    }
    wrapped = transformer_layer(draft.plan)
    if wrapped is not None:
        config["transformer_layer_cls_to_wrap"] = wrapped
    context = strategy.context_parallel_degree
    return {
        "fsdp_version": 2,
        "fsdp_config": config,
        "dp_shard_size": strategy.shard_degree,
        "dp_replicate_size": strategy.replicate_degree,
        "tensor_parallel_size": strategy.tensor_parallel_degree,
        "context_parallel_size": context,
        **({"attn_implementation": "flash_attention_2"} if context > 1 else {}),
    }
