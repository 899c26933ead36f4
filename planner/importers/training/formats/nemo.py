"""NeMo's recipes, and Megatron-LM's `--yaml-cfg`: Megatron's settings as YAML keys.

Source: NVIDIA/NeMo-Framework-Launcher, launcher_scripts/conf/training; Megatron-LM 0.19.2,
megatron/training/yaml_arguments.py; NeMo 2.5, `nemo/collections/llm/recipes`.
"""

from __future__ import annotations

from planner.importers.training.format import Format, under
from planner.importers.training.formats.megatron_keys import (
    BATCH,
    BESIDE,
    GRADIENTS,
    MODEL,
    NUMBERS,
    STATES,
    beside_under,
)
from planner.schema.job import Stack

_OLDER = {
    "encoder_seq_length": "--seq-length",
    "activations_checkpoint_granularity": "--recompute-granularity",
    "activations_checkpoint_method": "--recompute-method",
    "activations_checkpoint_num_layers": "--recompute-num-layers",
    "overlap_grad_sync": "--overlap-grad-reduce",
    "ub_tp_comm_overlap": "--tp-comm-overlap",
}
_DISTRIBUTED = {"distributed_fused_adam", "mcore_distributed_optim"}
NEMO = Format(
    name="nemo",
    title="NeMo",
    signature=(
        ("trainer", "model.tensor_model_parallel_size"),
        ("trainer", "model.pipeline_model_parallel_size"),
    ),
    sets={
        **under("model", {**MODEL, **BATCH, **STATES, **NUMBERS, **_OLDER}),
        "model.optim.overlap_grad_sync": "--overlap-grad-reduce",
        "model.optim.name": "--use-distributed-optimizer",
        "model.data.seq_length": "--seq-length",
        "model.peft.peft_scheme": "adapter",
        "model.peft.lora_tuning.adapter_dim": "lora_rank",
        "model.peft.lora_tuning.target_modules": "lora_targets",
        "model.peft.lora_tuning.adapter_dropout": "lora_dropout",
        "trainer.precision": "precision",
        "trainer.devices": "devices_per_node",
        "trainer.num_nodes": "node_count",
        "trainer.gradient_clip_val": "clipping",
    },
    convert={"model.optim.name": lambda name: name in _DISTRIBUTED or None},
    beside="name run restore_from_path trainer exp_manager model.tokenizer model.data model.optim "
    "model.peft model.nsys_profile model.restore_from_path model.mcore_gpt "
    "model.transformer_engine "
    "model.activations_checkpoint_layers_per_pipeline model.gradient_as_bucket_view "
    "model.megatron_amp_O2 "
    "model.resume_from_checkpoint model.fp8_e4m3 model.fp8_hybrid model.fp8_amax_history_len "
    "model.native_amp_init_scale "
    "model.num_micro_batches_with_partial_activation_checkpoints " + beside_under("model"),
    stack=Stack.MEGATRON,
)
_SECTIONS = ("model_parallel", "language_model", "training", "parallelism")
_YAML = {**MODEL, **BATCH, **STATES, **GRADIENTS, **NUMBERS, **_OLDER}
_YAML_SETS = dict(_YAML)
for _section in _SECTIONS:
    _YAML_SETS |= under(_section, _YAML)
MEGATRON_YAML = Format(
    name="megatron-lm",
    title="Megatron-LM",
    signature=tuple(
        (f"{section}{degree}",)
        for section in ("", *(f"{one}." for one in _SECTIONS))
        for degree in ("tensor_model_parallel_size", "pipeline_model_parallel_size")
    ),
    sets=_YAML_SETS,
    beside=f"{BESIDE} {beside_under(*_SECTIONS)}",
    stack=Stack.MEGATRON,
)
