"""ms-swift: arguments of `swift sft` and of `megatron sft`.

Names are of ms-swift 3.10, `llm/argument` and `megatron/argument`.
"""

from __future__ import annotations

from planner.importers.training.format import Format
from planner.importers.training.formats.hf_trainer import AXES, BESIDE, FSDP, FSDP_BESIDE, TRAINING
from planner.importers.training.formats.megatron_keys import (
    BATCH,
    GRADIENTS,
    MODEL,
    NUMBERS,
    STATES,
)
from planner.importers.training.formats.megatron_keys import BESIDE as MEGATRON_BESIDE
from planner.schema.job import Stack

_LORA = {
    "train_type": "adapter",
    "tuner_type": "adapter",
    "lora_rank": "lora_rank",
    "lora_dropout": "lora_dropout",
    "target_modules": "lora_targets",
    "modules_to_save": "lora_whole",
    "use_dora": "lora_dora",
    "task_type": "task",
    "num_labels": "labels",
    "rlhf_type": "objective",
    "freeze_vit": "frozen_tower",
}
_FROZEN = {
    "vit_gradient_checkpointing": "the tower is priced as checkpointed like the decoder",
    "teacher_model": "the teacher is not priced, the training step is",
    "mtp_num_layers": "layers of further tokens are not priced",
    "mtp_num_layers=1": "layers of further tokens are not priced",
    "freeze_llm": "all of it is priced as trained",
    "freeze_aligner": "it is priced as trained",
}
_BESIDE = f"""
    {BESIDE} model model_type model_revision dataset val_dataset split_dataset_ratio
    dataset_num_proc dataset_shuffle data_seed streaming load_from_cache_file columns strict
    cached_dataset template system truncation_strategy max_pixels packing packing_length
    padding_free
    lora_alpha lorap_lr_ratio use_rslora init_weights lora_bias
    trainable_parameters freeze_parameters model_author model_name use_hf loss_scale load_args
    check_model create_checkpoint_symlink report_to attn_impl_version custom_register_path
    external_plugins beta loss_type ref_model response_length_limit padding_side
    quant_method_type bnb_4bit_compute_dtype bnb_4bit_quant_type
    use_vllm vllm_mode vllm_gpu_memory_utilization vllm_max_model_len vllm_tensor_parallel_size
    vllm_server_host vllm_server_port vllm_data_parallel_size vllm_server_pass_dataset
    vllm_enable_lora sleep_level max_completion_length reward_funcs temperature top_p top_k
    log_completions overlong_filter dynamic_sample epsilon epsilon_high num_iterations
    steps_per_generation importance_sampling_level multi_turn_scheduler max_turns rpo_alpha lmbda
    enable_thinking offload_model offload_optimizer offload_bridge to_cached_dataset
    cached_val_dataset resume_only_model swanlab_project
    add_version use_chat_template agent_template max_epochs
    no_initialization load_safetensors save_safetensors merge_lora mcore_model hf_model
    """
MS_SWIFT = Format(
    name="ms-swift",
    title="ms-swift",
    signature=(
        ("train_type", "!tensor_model_parallel_size", "!micro_batch_size"),
        ("tuner_type", "!tensor_model_parallel_size", "!micro_batch_size"),
        ("model", "dataset", "torch_dtype", "per_device_train_batch_size"),
        *((f"program=swift {command}",) for command in ("sft", "pt", "rlhf")),
    ),
    sets={
        **TRAINING,
        "gradient_checkpointing": "checkpointing",
        "fsdp": "fsdp_switch",
        **FSDP,
        **AXES,
        **_LORA,
        "quant_bits": "base_bits",
        "quant_method": "quantization_method",
        "bnb_4bit_use_double_quant": "nested_scales",
        "max_length": "sequence_length",
        "torch_dtype": "precision",
        "attn_impl": "attention",
        "sequence_parallel_size": "heads",
    },
    unpriced={
        **_FROZEN,
        "num_generations": "sampling is not priced, the training step is",
        "deepspeed_autotp_size": "tensor parallelism of DeepSpeed's AutoTP is not priced",
    },
    refused=dict.fromkeys(
        ("galore_rank", "use_galore", "lisa_activated_layers", "use_ray"),
        "leave it out to price the model without it",
    ),
    beside=f"{_BESIDE} {FSDP_BESIDE}",
    assumed={
        "micro_batch": 1,
        "adapter": "lora",
        "lora_rank": 8,
        "lora_targets": "all-linear",
        "precision": "bfloat16",
        "checkpointing": True,
        "nested_scales": True,
    },
    fixed={"deepspeed_by_name": True, "frozen_tower": True},
)
MS_SWIFT_MEGATRON = Format(
    name="ms-swift-megatron",
    title="ms-swift with Megatron-Core",
    signature=(
        ("train_type", "tensor_model_parallel_size"),
        ("train_type", "micro_batch_size"),
        ("tuner_type", "micro_batch_size"),
        ("tuner_type", "tensor_model_parallel_size"),
        *((f"program=megatron {command}",) for command in ("sft", "pt", "rlhf")),
    ),
    sets={
        **MODEL,
        **BATCH,
        **STATES,
        **GRADIENTS,
        **NUMBERS,
        **_LORA,
        "max_length": "--seq-length",
        "torch_dtype": "precision",
        "fp8_format": "fp8",
    },
    unpriced=_FROZEN,
    beside=f"{_BESIDE} {MEGATRON_BESIDE}",
    fixed={"frozen_tower": True},
    stack=Stack.MEGATRON,
    assumed={
        "precision": "bfloat16",
        "--use-distributed-optimizer": True,
        "adapter": "full",
        "lora_rank": 8,
        "lora_targets": "all-linear",
        "--recompute-granularity": "selective",
    },
)
