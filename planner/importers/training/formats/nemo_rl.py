"""NeMo-RL: the policy's training step, on DTensor or on Megatron-Core, whichever is enabled.

Names are of NeMo-RL 0.4, `examples/configs/grpo_math_1B.yaml` and `nemo_rl/models/policy`.
"""

from __future__ import annotations

from planner.importers.training.format import Format, under
from planner.importers.training.formats.megatron_keys import BESIDE as MEGATRON_BESIDE
from planner.importers.training.formats.megatron_keys import MODEL, STATES
from planner.schema.job import Stack

_STEP = under(
    "policy",
    {
        "train_global_batch_size": "global_batch",
        "train_micro_batch_size": "micro_batch",
        "max_total_sequence_length": "sequence_length",
        "precision": "precision",
        "max_grad_norm": "clipping",
        "optimizer.name": "optimizer",
        "reward_model_cfg.enabled": "scores",
    },
)
_CONVERT = {"policy.max_grad_norm": lambda norm: norm or 0}  # null clips nothing
_DEVICES = {"cluster.gpus_per_node": "devices_per_node", "cluster.num_nodes": "node_count"}
_UNPRICED = {
    "policy.sequence_packing.enabled": "packed micro-batches are priced as whole sequences",
    "policy.dynamic_batching.enabled": "batches by tokens are priced as whole sequences",
}
_BESIDE = """
    grpo dpo sft rm distillation loss_fn checkpointing data env logger teacher ray defaults
    policy.model_name policy.tokenizer policy.generation policy.generation_batch_size
    policy.logprob_batch_size policy.logprob_chunk_size policy.optimizer policy.scheduler
    policy.make_sequence_length_divisible_by policy.hf_config_overrides
    policy.reward_model_cfg.reward_model_type
    policy.offload_optimizer_for_logprob policy.refit_buffer_size_gb
    policy.dynamic_batching policy.sequence_packing
"""
_LORA = {
    "enabled": "use_lora",
    "dim": "lora_rank",
    "dropout": "lora_dropout",
    "target_modules": "lora_targets",
    "match_all_linear": "lora_everywhere",
    "use_dora": "lora_dora",
}
_NOTES = ("the policy's training step is priced; sampling and the reference model are not",)
_DTENSOR = "policy.dtensor_cfg"
NEMO_RL_DTENSOR = Format(
    name="nemo-rl",
    title="NeMo-RL on DTensor",
    signature=(
        (f"{_DTENSOR}.enabled=true",),
        (_DTENSOR, f"!{_DTENSOR}.enabled", "!policy.megatron_cfg.enabled=true"),
    ),
    sets={
        **_STEP,
        **_DEVICES,
        **under(
            _DTENSOR,
            {
                "tensor_parallel_size": "tensor",
                "context_parallel_size": "context",
                "expert_parallel_size": "expert",
                "dp_replicate_size": "replicate",
                "sequence_parallel": "sequence_parallel",
                "activation_checkpointing": "checkpointing",
                "cpu_offload": "offload",
            },
        ),
        **under(f"{_DTENSOR}.lora_cfg", _LORA),
        **under(f"{_DTENSOR}.lora", _LORA),
    },
    unpriced=_UNPRICED,
    beside=f"{_BESIDE} policy.megatron_cfg {_DTENSOR}._v2 {_DTENSOR}.enabled "
    f"{_DTENSOR}.custom_parallel_plan {_DTENSOR}.defer_fsdp_grad_sync "
    f"{_DTENSOR}.env_vars {_DTENSOR}.clear_cache_every_n_steps "
    f"{_DTENSOR}.lora_cfg.alpha {_DTENSOR}.lora_cfg.exclude_modules "
    f"{_DTENSOR}.lora_cfg.dropout_position {_DTENSOR}.lora_cfg.lora_A_init "
    f"{_DTENSOR}.lora_cfg.use_triton {_DTENSOR}.automodel_kwargs",
    assumed={"precision": "bfloat16", "lora_rank": 8},
    fixed={"zero_stage": 3},
    convert=_CONVERT,
    notes=_NOTES,
)
_MEGATRON = "policy.megatron_cfg"
NEMO_RL_MEGATRON = Format(
    name="nemo-rl-megatron",
    title="NeMo-RL on Megatron-Core",
    signature=((f"{_MEGATRON}.enabled=true",),),
    sets={
        **_STEP,
        **_DEVICES,
        **under(_MEGATRON, {**MODEL, "activation_checkpointing": "checkpointing"}),
        **under(f"{_MEGATRON}.model_overrides", MODEL),
        **under(f"{_MEGATRON}.optimizer", STATES),
        **under(
            f"{_MEGATRON}.distributed_data_parallel_config",
            {**STATES, "use_custom_fsdp": "--use-megatron-fsdp"},
        ),
        **under(f"{_MEGATRON}.peft", _LORA),
        f"{_MEGATRON}.fp8_cfg.enabled": "fp8",
    },
    unpriced={
        **_UNPRICED,
        f"{_MEGATRON}.freeze_moe_router": "the router is priced as trained",
    },
    beside=f"{_BESIDE} policy.dtensor_cfg {_MEGATRON}.enabled {_MEGATRON}.converter_type "
    f"{_MEGATRON}.empty_unused_memory_level {_MEGATRON}.scheduler {_MEGATRON}.optimizer "
    f"{_MEGATRON}.distributed_data_parallel_config {_MEGATRON}.fp8_cfg {_MEGATRON}.env_vars "
    f"{_MEGATRON}.defer_fp32_logits {_MEGATRON}.peft {_MEGATRON}.moe_per_layer_logging "
    + " ".join(f"{_MEGATRON}.{name}" for name in MEGATRON_BESIDE.split()),
    stack=Stack.MEGATRON,
    assumed={"precision": "bfloat16", "--use-distributed-optimizer": True, "lora_rank": 8},
    convert=_CONVERT,
    notes=_NOTES,
)
