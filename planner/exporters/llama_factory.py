"""LLaMA-Factory: a plan as the YAML of `llamafactory-cli train` and its DeepSpeed configuration.

Keys are those of LLaMA-Factory 0.9.6, `hparams/finetuning_args.py`, `model_args.py` and
`data_args.py`, beside transformers' `TrainingArguments`. Replicas need no DeepSpeed.
"""

from __future__ import annotations

import json

from planner.exporters.adapter_fields import llama_factory_adapters
from planner.exporters.deepspeed import deepspeed_fields, settled_for_trainers_deepspeed
from planner.exporters.draft import Draft, refusal, zero_stages
from planner.exporters.export import Export, ExportedFile
from planner.exporters.job_fields import OPTIMIZERS
from planner.exporters.yaml_lines import Fields, yaml_text
from planner.schema.job import Precision
from planner.schema.plan import Plan

_DEEPSPEED_FILE = "deepspeed.json"


def export_llama_factory(plan: Plan, target: str) -> Export:
    """Return the YAML, to be completed with model, data and output, and DeepSpeed's JSON."""
    draft = settled_for_trainers_deepspeed(plan, target)
    _refuse_unpacked(draft)
    comments = draft.comments(
        f"Plan {plan.id} for LLaMA-Factory 0.9.6.",
        "Add model_name_or_path, dataset, template and output_dir.",
    )
    text = json.dumps(deepspeed_fields(draft), indent=2) + "\n"
    return draft.exported(
        ExportedFile(name="llama_factory.yaml", text=yaml_text(_fields(draft), comments)),
        ExportedFile(name=_DEEPSPEED_FILE, text=text),
    )


def _refuse_unpacked(draft: Draft) -> None:
    """Refuse ZeRO 3 over weights of 8 bits (`model/model_utils/quantization.py`)."""
    adapters = draft.plan.job.resolved.adapters
    if adapters is None or adapters.base_bits != 8 or max(zero_stages(draft.strategy)) < 3:
        return
    raise refusal(
        draft,
        field="zero_stage",
        value=3,
        problem="LLaMA-Factory shards frozen weights of 4 bits, and none of 8",
        remedy="plan with limits.zero_stages [0, 1, 2], or with adapters.base_bits 4",
    )


def _fields(draft: Draft) -> Fields:
    strategy, job = draft.strategy, draft.plan.job.resolved
    names = OPTIMIZERS[draft.target]
    fields: Fields = {
        "stage": "sft",
        "do_train": True,
        **llama_factory_adapters(job.adapters),
        "deepspeed": _DEEPSPEED_FILE,
        "cutoff_len": job.sequence_length,
        "per_device_train_batch_size": strategy.micro_batch_size,
        "gradient_accumulation_steps": strategy.micro_batch_count,
        "bf16": job.precision in {Precision.BF16, Precision.FP8},
        "fp16": job.precision is Precision.FP16,
        **({"tf32": True} if job.tensor_float_32 else {}),
        "disable_gradient_checkpointing": not draft.recomputes_blocks,
    }
    if draft.plan.model.resolved.tower_block_count:  # which it freezes unless told
        fields |= {"freeze_vision_tower": False, "freeze_multi_modal_projector": False}
    if job.optimizer in names:
        fields["optim"] = names[job.optimizer]
    if job.gradient_clipping is not None:
        fields["max_grad_norm"] = 1.0 if job.gradient_clipping else 0.0
    return fields
