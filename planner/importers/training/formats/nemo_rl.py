"""NeMo-RL: the policy's training step, on DTensor or on Megatron-Core, whichever is enabled.

Names are of NeMo-RL 0.4, `examples/configs/grpo_math_1B.yaml` and `nemo_rl/models/policy`.
"""

from __future__ import annotations

from planner.importers.training.format import Format, under
from planner.importers.training.formats.megatron_keys import BESIDE as MEGATRON_BESIDE
from planner.importers.training.formats.megatron_keys import (
    GRADIENTS,
    MODEL,
    OFFLOADED_RATIO,
    STATES,
    beside_under,
)
from planner.schema.job import Stack

_STEP = under(
    "policy",
    {
        "train_global_batch_size": "global_batch",
        "train_micro_batch_size": "micro_batch",
        "max_total_sequence_length": "sequence_length",
        "precision": "precision",
        "reward_model_cfg.enabled": "scores",
    },
)
_CONVERT = {"policy.max_grad_norm": lambda norm: norm or 0}  # null clips nothing
_DEVICES = {"cluster.gpus_per_node": "devices_per_node", "cluster.num_nodes": "node_count"}
_UNPRICED = {
    "policy.draft.enabled": "a draft model that is trained beside is not priced",
    "policy.quant_cfg": "products are priced without quantization",
    "policy.sequence_packing.enabled": "packed micro-batches are priced as whole sequences",
    "policy.dynamic_batching.enabled": "batches by tokens are priced as whole sequences",
}
_BESIDE = """
    grpo dpo sft rm ppo distillation loss_fn checkpointing data env logger teacher teachers ray
    defaults reward_penalties value value_loss_fn data_plane cluster.* policy.optimizer.*
    policy.model_name policy.tokenizer policy.generation policy.generation_batch_size
    policy.logprob_batch_size policy.logprob_chunk_size policy.optimizer policy.scheduler
    policy.make_sequence_length_divisible_by policy.hf_config_overrides
    policy.reward_model_cfg.reward_model_type
    policy.offload_optimizer_for_logprob policy.refit_buffer_size_gb
    policy.dynamic_batching policy.sequence_packing policy.draft policy.router_replay policy.is_vlm
    policy.pretrained_checkpoint policy.disable_modelopt_layer_spec policy.quant_calib_data
    policy.quant_calib_size policy.quant_batch_size policy.quant_sequence_length
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
_DEFERRED = "gradients are priced as reduced after each micro-batch"
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
        f"{_DTENSOR}.automodel_kwargs.use_liger_kernel": "liger",
        "policy.optimizer.name": "optimizer",
        "policy.max_grad_norm": "clipping",
    },
    unpriced={**_UNPRICED, f"{_DTENSOR}.defer_fsdp_grad_sync": _DEFERRED},
    beside=f"{_BESIDE} policy.megatron_cfg {_DTENSOR}._v2 {_DTENSOR}.enabled "
    f"{_DTENSOR}.custom_parallel_plan "
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
_OF_THE_OPTIMIZER = "bf16 fp16 sgd_momentum overlap_cpu_optimizer_d2h_h2d"
_FURTHER_TOKENS = "layers of further tokens are not priced"
NEMO_RL_MEGATRON = Format(
    name="nemo-rl-megatron",
    title="NeMo-RL on Megatron-Core",
    signature=((f"{_MEGATRON}.enabled=true",),),
    sets={
        **_STEP,
        **_DEVICES,
        **under(_MEGATRON, {**MODEL, "activation_checkpointing": "checkpointing"}),
        **under(f"{_MEGATRON}.model_overrides", MODEL),
        **under(f"{_MEGATRON}.optimizer", {**STATES, "optimizer": "optimizer"}),
        **under(
            f"{_MEGATRON}.distributed_data_parallel_config",
            {**STATES, **GRADIENTS, "use_custom_fsdp": "--use-megatron-fsdp"},
        ),
        **under(f"{_MEGATRON}.peft", _LORA),
        f"{_MEGATRON}.fp8_cfg.enabled": "fp8",
        f"{_MEGATRON}.use_fused_linear_logprobs": "fused_loss",
    },
    unpriced={
        **_UNPRICED,
        f"{_MEGATRON}.mtp_num_layers": _FURTHER_TOKENS,
        f"{_MEGATRON}.mtp_num_layers=1": _FURTHER_TOKENS,
        f"{_MEGATRON}.fine_grained_activation_offloading": "it is priced on the device",
        f"{_MEGATRON}.cuda_graph_impl": "launches are priced one by one",
        f"{_MEGATRON}.freeze_moe_router": "the router is priced as trained",
    },
    beside=f"{_BESIDE} policy.dtensor_cfg policy.max_grad_norm "
    f"{_MEGATRON}.enabled {_MEGATRON}.converter_type "
    f"{_MEGATRON}.empty_unused_memory_level {_MEGATRON}.scheduler {_MEGATRON}.optimizer "
    f"{_MEGATRON}.distributed_data_parallel_config {_MEGATRON}.fp8_cfg {_MEGATRON}.env_vars "
    f"{_MEGATRON}.defer_fp32_logits {_MEGATRON}.peft {_MEGATRON}.moe_per_layer_logging "
    f"{_MEGATRON}.checkpoint {_MEGATRON}.force_reconvert_from_hf {_MEGATRON}.moe_enable_deepep "
    f"{_MEGATRON}.fused_linear_logprobs_chunk_size {_MEGATRON}.offload_modules "
    f"{_MEGATRON}.cuda_graph_modules {_MEGATRON}.cuda_graph_warmup_steps "
    f"{_MEGATRON}.use_gloo_process_groups {_MEGATRON}.use_fused_weighted_squared_relu "
    f"{_MEGATRON}.mtp_loss_scaling_factor {_MEGATRON}.mtp_use_repeated_layer "
    f"{_MEGATRON}.mtp_detach_heads {_MEGATRON}.clear_memory_caches_before_refit "
    + " ".join(f"{_MEGATRON}.optimizer.{name}" for name in _OF_THE_OPTIMIZER.split())
    + " "
    + beside_under(f"{_MEGATRON}.optimizer", f"{_MEGATRON}.distributed_data_parallel_config")
    + f" {_MEGATRON}.peft.* {_MEGATRON}.fp8_cfg.* "
    f"{_MEGATRON}.train_iters {_MEGATRON}.force_overwrite_initial_ckpt "
    + " ".join(f"{_MEGATRON}.{name}" for name in MEGATRON_BESIDE.split()),
    stack=Stack.MEGATRON,
    assumed={"precision": "bfloat16", "--use-distributed-optimizer": True, "lora_rank": 8},
    fixed=OFFLOADED_RATIO,
    convert=_CONVERT,
    notes=_NOTES,
)
