"""LLaMA-Factory: arguments of `llamafactory-cli train`, alone or with those of Megatron-Core.

Names are of LLaMA-Factory 0.9.4, `hparams/finetuning_args.py`, `model_args.py` and `data_args.py`,
and of `examples/megatron`.
"""

from __future__ import annotations

from planner.importers.training.format import Format
from planner.importers.training.formats.hf_trainer import AXES, BESIDE, FSDP, FSDP_BESIDE, TRAINING
from planner.importers.training.formats.megatron_keys import BESIDE as MEGATRON_BESIDE
from planner.importers.training.formats.megatron_keys import MODEL, STATES
from planner.schema.job import Stack

_BESIDE = f"""
    {BESIDE} {FSDP_BESIDE} model_name_or_path adapter_name_or_path adapter_folder cache_dir
    trust_remote_code template dataset dataset_dir eval_dataset eval_dataset_dir media_dir
    max_samples overwrite_cache preprocessing_num_workers preprocessing_batch_size mask_history
    train_on_prompt streaming buffer_size mix_strategy interleave_probs packing neat_packing
    tokenized_path val_size plot_loss resize_vocab split_special_tokens new_special_tokens
    use_fast_tokenizer low_cpu_mem_usage rope_scaling moe_aux_loss_coef image_max_pixels
    image_min_pixels video_max_pixels video_min_pixels video_fps video_maxlen lora_alpha
    additional_target create_new_adapter use_rslora loraplus_lr_ratio pissa_init pissa_iter
    pissa_convert pref_beta pref_ftx pref_loss ref_model reward_model reward_model_type
    compute_accuracy quantization_type quantization_device_map disable_shuffling
    early_stopping_steps print_param_status model_revision hf_hub_token ray_run_name
    ray_storage_path ray_init_kwargs resources_per_worker placement_strategy enable_thinking
    ignore_pad_token_for_loss default_system tool_format do_sample max_new_tokens top_p temperature
    predict_with_generate infer_backend infer_dtype swanlab_project swanlab_run_name use_swanlab
    flash_attn_version
    disable_gradient_checkpointing_reentrant use_reentrant_gc save_hf_model fp8_backend
    use_dft_loss use_asft_loss asft_alpha use_eaft_loss
"""
_UNPRICED = {
    # `train/fp8_utils.py` logs that it was asked for, and configures nothing
    "fp8_enable_fsdp_float8_all_gather": "weights are priced as gathered in 16 bits",
    "enable_liger_kernel_loss": "priced as Liger has it",
    "use_unsloth": "Unsloth's kernels are priced as those of torch",
    "use_unsloth_gc": "activations that Unsloth moves to the host are priced on the device",
    "shift_attn": "attention of shifted groups is priced as full attention",
    "upcast_layernorm": "norms in 32 bits are priced in 16",
    "upcast_lmhead_output": "logits are priced as the stack has them",
    "freeze_extra_modules": "all of it is priced as trained",
    "freeze_language_model": "all of it is priced as trained",
    "freeze_multi_modal_projector": "all of it is priced as trained",
}
_REFUSED = dict.fromkeys(
    (
        "use_galore",
        "use_apollo",
        "use_badam",
        "use_adam_mini",
        "use_llama_pro",
        "freeze_trainable_layers",
        "mixture_of_depths",
        "use_kt",
    ),
    "leave it out to price the model without it",
)
LLAMA_FACTORY = Format(
    name="llama-factory",
    title="LLaMA-Factory",
    signature=(
        ("finetuning_type", "stage", "!tensor_model_parallel_size"),
        ("finetuning_type", "template", "!tensor_model_parallel_size"),
        ("finetuning_type", "cutoff_len", "!tensor_model_parallel_size"),
        ("stage", "template", "cutoff_len", "!tensor_model_parallel_size"),
    ),
    sets={
        **TRAINING,
        "gradient_checkpointing": "checkpointing",
        "fsdp": "fsdp_switch",
        **FSDP,
        **AXES,
        "finetuning_type": "adapter",
        "lora_rank": "lora_rank",
        "lora_target": "lora_targets",
        "lora_dropout": "lora_dropout",
        "additional_target": "lora_whole",
        "use_dora": "lora_dora",
        "quantization_bit": "base_bits",
        "quantization_method": "quantization_method",
        "double_quantization": "nested_scales",
        "cutoff_len": "sequence_length",
        "stage": "objective",
        "freeze_vision_tower": "frozen_tower",
        "pure_bf16": "pure_bf16",
        "fp8": "fp8",
        "enable_liger_kernel": "liger",
        "flash_attn": "attention",
        "disable_gradient_checkpointing": "no_checkpointing",
    },
    unpriced={**_UNPRICED, "use_muon": "its optimizer is priced as adamw"},
    refused=_REFUSED,
    beside=_BESIDE,
    assumed={
        "micro_batch": 8,
        "adapter": "lora",
        "lora_rank": 8,
        "lora_targets": "all",
        "sequence_length": 2048,
        "checkpointing": True,
        "nested_scales": True,
    },
    fixed={"deepspeed_by_name": True, "frozen_tower": True},
)
LLAMA_FACTORY_MEGATRON = Format(
    name="llama-factory-megatron",
    title="LLaMA-Factory with Megatron-Core",
    signature=(
        ("tensor_model_parallel_size", "stage", "template"),
        ("pipeline_model_parallel_size", "stage", "template"),
        ("tensor_model_parallel_size", "cutoff_len"),
    ),
    sets={
        **MODEL,
        **STATES,
        "per_device_train_batch_size": "--micro-batch-size",
        "gradient_accumulation_steps": "accumulation",
        "cutoff_len": "--seq-length",
        "stage": "objective",
        "freeze_vision_tower": "frozen_tower",
        "finetuning_type": "adapter",
        "bf16": "bf16",
        "fp16": "fp16",
        "tf32": "tensor_float_32",
        "max_grad_norm": "clipping",
        "optim": "optimizer",
    },
    unpriced=_UNPRICED,
    refused=_REFUSED,
    beside=f"{_BESIDE} {MEGATRON_BESIDE} deepspeed gradient_checkpointing",
    stack=Stack.MEGATRON,
    fixed={"frozen_tower": True},
    assumed={"--micro-batch-size": 8, "--recompute-num-layers": 1},
)
