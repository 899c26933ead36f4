"""Megatron-Bridge: overrides of a recipe, YAML, or the assignments of a recipe's function.

Names are of Megatron-Bridge 0.2, `megatron/bridge/training/config.py`.
"""

from __future__ import annotations

from planner.importers.training.format import Format, under
from planner.importers.training.formats.megatron_keys import (
    BATCH,
    MODEL,
    OF_THE_RECIPE,
    OFFLOADED_RATIO,
    STATES,
    beside_under,
)
from planner.schema.job import Stack

MEGATRON_BRIDGE = Format(
    name="megatron-bridge",
    title="Megatron-Bridge",
    signature=(
        *tuple(
            (f"model.{degree}", f"!{other}")
            for degree in ("tensor_model_parallel_size", "pipeline_model_parallel_size")
            for other in ("trainer",)
        ),
        ("train.global_batch_size", "model"),
        ("train.micro_batch_size", "ddp"),
    ),
    sets={
        **under("model", MODEL),
        **under("train", BATCH),
        **under("ddp", STATES),
        **under("optimizer", STATES),
        "dataset.sequence_length": "--seq-length",
        "dataset.seq_length": "--seq-length",
        "comm_overlap.tp_comm_overlap": "--tp-comm-overlap",
        "mixed_precision": "precision",
        "optimizer.optimizer": "optimizer",
        "peft.dim": "lora_rank",
        "peft.dropout": "lora_dropout",
        "peft.target_modules": "lora_targets",
        "peft.peft_scheme": "adapter",
    },
    unpriced={"ddp.grad_reduce_in_fp32=false": OF_THE_RECIPE},
    beside="model._target_ train dataset scheduler logger checkpoint tokenizer rng profiling "
    "dist comm_overlap nvrx_straggler ft optimizer.lr optimizer.min_lr optimizer.weight_decay "
    "optimizer.adam_beta1 optimizer.adam_beta2 optimizer.adam_eps "
    "optimizer.bf16 optimizer.fp16 peft.alpha "
    "ddp.overlap_param_gather ddp.grad_reduce_in_fp32 ddp.check_for_nan_in_grad "
    "ddp.average_in_collective ddp.align_param_gather ddp._target_ optimizer._target_ _target_ "
    "validation model.cpu_offloading " + beside_under("model", "ddp", "optimizer"),
    stack=Stack.MEGATRON,
    assumed={"precision": "bf16_mixed", "--use-distributed-optimizer": True},
    fixed=OFFLOADED_RATIO,
)
