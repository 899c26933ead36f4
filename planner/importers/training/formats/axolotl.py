"""Axolotl: YAML of `axolotl train`.

Names are of Axolotl 0.18, `utils/schemas/config.py` and its parts. Weights are loaded in the format
of products and trained in it (`utils/config`, `resolve_dtype`), but under DeepSpeed, which keeps
copies in 32 bits. Under FSDP they stay so (`monkeypatch/accelerate/fsdp2.py`).
"""

from __future__ import annotations

from planner.importers.training.format import Format
from planner.importers.training.formats.hf_trainer import BESIDE, FSDP, FSDP_BESIDE

AXOLOTL = Format(
    name="axolotl",
    title="Axolotl",
    signature=(
        ("base_model", "micro_batch_size"),
        ("base_model", "datasets", "sequence_len"),
        ("base_model", "adapter"),
    ),
    sets={
        "micro_batch_size": "micro_batch",
        "batch_size": "global_batch",
        "gradient_accumulation_steps": "accumulation",
        "sequence_len": "sequence_length",
        "bf16": "bf16",
        "bfloat16": "pure_bf16",
        "liger_rms_norm": "fused_norms",
        "fp16": "fp16",
        "float16": "fp16 narrow_states",
        "tf32": "tensor_float_32",
        "fp8": "fp8",
        "fp8_enable_fsdp_float8_all_gather": "float8_gather",
        "optimizer": "optimizer",
        "max_grad_norm": "clipping",
        "gradient_checkpointing": "checkpointing",
        "activation_offloading": "offload_activations",
        "deepspeed": "deepspeed",
        "fsdp": "fsdp",
        "fsdp_version": "fsdp_version",
        **FSDP,
        "dp_shard_size": "shard",
        "dp_replicate_size": "replicate",
        "tensor_parallel_size": "tensor",
        "context_parallel_size": "context",
        "sequence_parallel_degree": "context",
        "expert_parallel_size": "expert",
        "adapter": "adapter",
        "lora_r": "lora_rank",
        "lora_dropout": "lora_dropout",
        "lora_target_modules": "lora_targets",
        "lora_target_linear": "lora_everywhere",
        "lora_modules_to_save": "lora_whole",
        "peft_use_dora": "lora_dora",
        "load_in_4bit": "in_4_bits",
        "load_in_8bit": "in_8_bits",
        "bnb_config_kwargs.bnb_4bit_use_double_quant": "nested_scales",
        "torch_compile": "compile",
        "liger_fused_linear_cross_entropy": "fused_loss",
        "cut_cross_entropy": "fused_loss",
        "chunked_cross_entropy": "fused_loss",
        "attn_implementation": "attention",
        "eager_attention": "attention",
        "num_labels": "labels",
        "reward_model": "scores",
        "process_reward_model": "classes",
    },
    unpriced={
        "lora_mlp_kernel": "its fused product is priced as products one by one",
        "lora_qkv_kernel": "its fused product is priced as products one by one",
        "lora_o_kernel": "its fused product is priced as products one by one",
        "unfrozen_parameters": "all parameters are priced as trained",
        "gptq": "its kernels are priced as bitsandbytes'",
        "s2_attention": "attention of shifted groups is priced as full attention",
        "qat": "training that is aware of quantization is priced without it",
        "quantize_moe_experts": "experts are priced in the bits of the other weights",
        "lora_target_parameters": "experts' own adapters are not priced",
        "freeze_mm_modules": "all of it is priced as trained",
        "tiled_mlp": "products by pieces are priced whole",
        "rl": "sampling and the reference model are not priced, the training step is",
    },
    refused={
        "relora_steps": "leave it out to price the model without it",
        "lora_model_dir_merge": "leave it out",
    },
    beside=f"""
        {BESIDE} {FSDP_BESIDE} base_model base_model_config model_type tokenizer_type
        tokenizer_config
        trust_remote_code datasets test_datasets pretraining_dataset dataset_prepared_path
        dataset_processes val_set_size output_dir sample_packing eval_sample_packing
        pad_to_sequence_len sample_packing_eff_est train_on_inputs lora_alpha lora_model_dir
        lora_fan_in_fan_out num_epochs lr_scheduler cosine_min_lr_ratio wandb_project wandb_entity
        wandb_watch wandb_name wandb_log_model wandb_run_id mlflow_experiment_name special_tokens
        tokens evals_per_epoch saves_per_epoch eval_table_size eval_max_new_tokens
        early_stopping_patience
        auto_resume_from_checkpoints plugins strict chat_template chat_template_jinja
        default_system_prompt shuffle_merged_datasets flash_attention sdp_attention
        xformers_attention flex_attention flash_attn_cross_entropy flash_attn_rms_norm
        flash_attn_fuse_mlp liger_rope liger_glu_activation liger_layer_norm
        gradient_checkpointing_kwargs is_llama_derived_model is_mistral_derived_model
        is_falcon_derived_model is_qwen_derived_model adam_beta1 adam_beta2 adam_epsilon
        hub_model_id
        hf_use_auth_token push_dataset_to_hub eval_batch_size xformers debug_steps logging_steps
        resize_token_embeddings_to_32x overrides_of_model_config revision_of_model peft_use_rslora
        loraplus_lr_ratio neftune_noise_alpha noisy_embedding_alpha bnb_config_kwargs
        ddp_timeout use_tensorboard rope_theta excess_length_strategy ring_attn_func
        heads_k_stride dataloader_num_workers curriculum_sampling group_by_length local_rank
        multipack_real_batches save_first_step experts_implementation eot_tokens processor_type
        skip_prepare_dataset loss_watchdog_threshold loss_watchdog_patience
        tokenizer_use_mistral_common trl vllm ebft swanlab_project swanlab_experiment_name
        swanlab_description swanlab_mode swanlab_log_completions use_swanlab eta_min
        cosine_constant_lr_ratio flex_attn_compile_kwargs model_config
    """,
    assumed={"bf16": True, "nested_scales": True},
    fixed={"deepspeed_by_name": True, "loads_in_compute_format": True},
    convert={
        "eager_attention": lambda on: "eager" if on else None,
        "activation_offloading": lambda way: True if way == "legacy" else way,
        "float16": lambda on: on or None,
    },
)
