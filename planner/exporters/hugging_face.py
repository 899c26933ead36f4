"""Hugging Face Trainer: a plan as the keyword arguments of `TrainingArguments`.

Names are those of transformers 5.23, `training_args.py`. `parallelism_config` holds the arguments
of Accelerate's `ParallelismConfig`, which the program has to make of them.
"""

from __future__ import annotations

import json

from planner.exporters.draft import Draft, offloads, refusal, with_one_zero_stage, zero_stages
from planner.exporters.export import Export, ExportedFile
from planner.exporters.fully_sharded import (
    is_sharded,
    settled_fully_sharded,
    transformer_layer,
    with_late_reduction,
)
from planner.exporters.job_fields import OPTIMIZERS
from planner.exporters.precision import without_float8
from planner.schema.job import Job, Precision
from planner.schema.plan import Plan
from planner.schema.strategy import Offload, Strategy

Fields = dict[str, object]


def export_hugging_face(plan: Plan, target: str) -> Export:
    """Return the arguments as JSON."""
    draft = _split_unsaid(settled_for_trainer(plan, target))
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
    draft = with_late_reduction(settled_fully_sharded(plan, target))
    return _split_at_load(without_float8(draft, "TrainingArguments"))


def is_split_at_load(draft: Draft) -> bool:
    """Return whether transformers splits and shards the model as it loads it.

    The Trainer then leaves the model as it is. Source: transformers 5.23, `trainer.py`,
    `is_distributed_loading_by_transformers`; `distributed/configuration_utils.py`.
    """
    return draft.strategy.tensor_parallel_degree > 1


def loading_fields(draft: Draft) -> Fields:
    """Return the arguments of transformers' `DistributedConfig`, none where it is not needed."""
    if not is_split_at_load(draft):
        return {}
    strategy = draft.strategy
    return {"tp_size": strategy.tensor_parallel_degree, "fsdp_size": strategy.shard_degree}


def _split_at_load(draft: Draft) -> Draft:
    """Keep: what `DistributedConfig` has beside tensor parallelism is ZeRO 3.

    Of its replicas the Trainer loses count (`dp_shard_size` takes them in).
    """
    if not is_split_at_load(draft):
        return draft
    strategy = draft.strategy
    for field, value, usual in (
        ("context_parallel_degree", strategy.context_parallel_degree, 1),
        ("data_parallel_replicate_degree", strategy.replicate_degree, 1),
        ("offload", sorted(item.value for item in offloads(strategy)), []),
    ):
        if value != usual:
            raise refusal(
                draft,
                field=field,
                value=value,
                problem="the Trainer has no such thing beside tensor parallelism",
                remedy="plan with limits.tensor_parallel_degree 1",
            )
    return with_one_zero_stage(draft, (3,), why="transformers shards what it splits at load")


def _split_unsaid(draft: Draft) -> Draft:
    """Say that the program splits the model, not its arguments."""
    if not is_split_at_load(draft):
        return draft
    given = ", ".join(f"{name}={size}" for name, size in loading_fields(draft).items())
    return draft.losing(
        "the arguments split no model: load it with "
        f"from_pretrained(..., distributed_config=DistributedConfig({given}))"
    )


def _numerics(job: Job) -> Fields:
    """Return what a script of one's own would say itself: the optimizer, and clipping."""
    fields: Fields = {}
    if job.optimizer in OPTIMIZERS["hf-trainer"]:
        fields["optim"] = OPTIMIZERS["hf-trainer"][job.optimizer]
    if job.gradient_clipping is not None:
        fields["max_grad_norm"] = 1.0 if job.gradient_clipping else 0.0
    return fields | ({"tf32": True} if job.tensor_float_32 else {})


def trainer_fields(draft: Draft) -> Fields:
    """Return the keyword arguments of parallelism, memory and batch."""
    strategy, precision = draft.strategy, draft.plan.job.resolved.precision
    full = draft.recomputes_blocks
    sharded = is_sharded(draft)
    fields: Fields = {
        "per_device_train_batch_size": strategy.micro_batch_size,
        "gradient_accumulation_steps": strategy.micro_batch_count,
        "bf16": precision in {Precision.BF16, Precision.FP8},
        "fp16": precision is Precision.FP16,
    }
    if not sharded or is_split_at_load(draft):
        # The name that every release of 4 and 5 takes; the last ones of 5 warn of a newer one.
        fields |= {"gradient_checkpointing": True} if full else {}
    else:
        fields |= {"fsdp": True, "fsdp_config": _fsdp(draft, full=full)}
    return fields | ({"parallelism_config": _parallelism(strategy)} if sharded else {})


def _fsdp(draft: Draft, *, full: bool) -> Fields:
    config: Fields = {
        "version": 2,
        "reshard_after_forward": zero_stages(draft.strategy) == {3},
        "cpu_offload": Offload.PARAMETERS in offloads(draft.strategy),
        "activation_checkpointing": full,
    }
    wrapped = transformer_layer(draft.plan)
    return config if wrapped is None else config | {"transformer_layer_cls_to_wrap": [wrapped]}


def _parallelism(strategy: Strategy) -> Fields:
    return {
        "dp_replicate_size": strategy.replicate_degree,
        "dp_shard_size": strategy.shard_degree,
        "tp_size": strategy.tensor_parallel_degree,
        "cp_size": strategy.context_parallel_degree,
    }
