"""Hugging Face Trainer: a plan as the keyword arguments of `TrainingArguments`.

Names are those of transformers 5.23, `training_args.py`. `parallelism_config` holds the arguments
of Accelerate's `ParallelismConfig`, which the program has to make of them.
"""

from __future__ import annotations

import json

from planner.exporters.canonical import layer_groups
from planner.exporters.draft import Draft, offloads, zero_stages
from planner.exporters.export import Export, ExportedFile
from planner.exporters.fully_sharded import is_sharded, settled_fully_sharded, transformer_layer
from planner.exporters.job_fields import TRAINER_OPTIMIZERS
from planner.exporters.precision import without_float8
from planner.schema.job import Job, Precision
from planner.schema.plan import Plan
from planner.schema.strategy import ActivationCheckpointing, Offload

Fields = dict[str, object]


def export_hugging_face(plan: Plan, target: str) -> Export:
    """Return the arguments as JSON."""
    draft = settled_for_trainer(plan, target)
    fields = trainer_fields(draft) | _numerics(plan.job.resolved)
    text = json.dumps(fields, indent=2) + "\n"
    return Export(
        target=target,
        files=(ExportedFile(name="training_arguments.json", text=text),),
        losses=draft.losses,
        strategy=draft.strategy,
    )


def settled_for_trainer(plan: Plan, target: str) -> Draft:
    """Return what the Trainer can run of the plan, with what is lost.

    Raises:
        InputError: if it can run nothing like it.
    """
    return without_float8(settled_fully_sharded(plan, target), "TrainingArguments")


def _numerics(job: Job) -> Fields:
    """Return what a script of one's own would say itself: the optimizer, and clipping."""
    fields: Fields = {}
    if job.optimizer in TRAINER_OPTIMIZERS:
        fields["optim"] = TRAINER_OPTIMIZERS[job.optimizer]
    if job.gradient_clipping is not None:
        fields["max_grad_norm"] = 1.0 if job.gradient_clipping else 0.0
    return fields


def trainer_fields(draft: Draft) -> Fields:
    """Return the keyword arguments of parallelism, memory and batch."""
    strategy, precision = draft.strategy, draft.plan.job.resolved.precision
    full = next(layer_groups(strategy)).activation_checkpointing is ActivationCheckpointing.FULL
    sharded = is_sharded(draft)
    fields: Fields = {
        "per_device_train_batch_size": strategy.micro_batch_size,
        "gradient_accumulation_steps": strategy.micro_batch_count,
        "bf16": precision in {Precision.BF16, Precision.FP8},
        "fp16": precision is Precision.FP16,
    }
    if not sharded:
        # The name that every release of 4 and 5 takes; the last ones of 5 warn of a newer one.
        return fields | ({"gradient_checkpointing": True} if full else {})
    wrapped = transformer_layer(draft.plan)
    config: Fields = {
        "version": 2,
        "reshard_after_forward": zero_stages(strategy) == {3},
        "cpu_offload": Offload.PARAMETERS in offloads(strategy),
        "activation_checkpointing": full,
    }
    if wrapped is not None:
        config["transformer_layer_cls_to_wrap"] = [wrapped]
    return fields | {
        "fsdp": True,
        "fsdp_config": config,
        "parallelism_config": {
            "dp_replicate_size": strategy.replicate_degree,
            "dp_shard_size": strategy.shard_degree,
            "tp_size": strategy.tensor_parallel_degree,
            "cp_size": strategy.context_parallel_degree,
        },
    }
