"""Hugging Face's Trainer, and TRL's on it: keyword arguments of `TrainingArguments`.

Names are of transformers 5.23, `training_args.py`, and of TRL 1.16, `trainer/model_config.py`,
`base_config.py` and `sft_config.py`.
"""

from __future__ import annotations

from dataclasses import replace

from planner.importers.training.format import Format, under

# Arguments of logging, saving, evaluation, data, the learning rate and the program around them.
BESIDE = """
    accelerator_config adam_beta1 adam_beta2 adam_epsilon auto_find_batch_size
    average_tokens_across_devices
    batch_eval_metrics bf16_full_eval data_seed dataloader_drop_last dataloader_in_order
    dataloader_multiprocessing_context dataloader_num_workers dataloader_persistent_workers
    dataloader_pin_memory dataloader_prefetch_factor ddp_backend ddp_broadcast_buffers
    ddp_bucket_cap_mb ddp_find_unused_parameters ddp_static_graph ddp_timeout debug disable_tqdm
    do_eval do_predict do_train enable_jit_checkpoint eval_accumulation_steps eval_delay
    eval_do_concat_batches eval_on_start eval_steps eval_strategy eval_use_gather_object
    evaluation_strategy fp16_full_eval full_determinism greater_is_better group_by_length
    hub_always_push hub_model_id hub_private_repo hub_revision hub_strategy hub_token
    ignore_data_skip
    include_for_metrics include_inputs_for_metrics include_num_input_tokens_seen
    include_tokens_per_second label_names label_smoothing_factor learning_rate length_column_name
    liger_kernel_config load_best_model_at_end local_rank log_level log_level_replica
    log_on_each_node logging_dir logging_first_step logging_nan_inf_filter logging_steps
    logging_strategy lr_scheduler_kwargs lr_scheduler_type max_steps metric_for_best_model
    neftune_noise_alpha
    num_train_epochs optim_args optim_target_modules output_dir overwrite_output_dir past_index
    per_device_eval_batch_size prediction_loss_only project push_to_hub remove_unused_columns
    report_to restore_callback_states_from_checkpoint resume_from_checkpoint run_name
    save_on_each_node
    save_only_model save_safetensors save_steps save_strategy save_total_limit seed
    skip_memory_metrics torch_compile_backend torch_compile_mode torch_empty_cache_steps
    trackio_bucket_id trackio_space_id trackio_static_space_id train_sampling_strategy use_cache
    use_cpu use_mps_device warmup_ratio warmup_steps weight_decay activation_checkpointing_kwargs
    gradient_checkpointing_kwargs jit_mode_eval no_cuda
"""
TRAINING = {
    "per_device_train_batch_size": "micro_batch",
    "gradient_accumulation_steps": "accumulation",
    "bf16": "bf16",
    "fp16": "fp16",
    "tf32": "tensor_float_32",
    "optim": "optimizer",
    "deepspeed": "deepspeed",
    "torch_compile": "compile",
    "use_liger_kernel": "liger",
    "max_grad_norm": "clipping",
}
# How the model is loaded, in arguments of TRL's.
_LOADED = dict.fromkeys(
    ("torch_dtype", "dtype", "model_init_kwargs.torch_dtype", "model_init_kwargs.dtype"),
    "states_precision",
)
SHARDED = {
    "sharding_strategy": "sharding",
    "reshard_after_forward": "reshard",
    "cpu_offload": "offload",
    "offload_params": "offload",
    "activation_checkpointing": "fsdp_checkpointing",
    "version": "fsdp_version",
}
FSDP_BESIDE = " ".join(
    f"fsdp_config.{prefix}{name}"
    for prefix in ("", "fsdp_")
    for name in [
        "auto_wrap_policy",
        "backward_prefetch",
        "cpu_ram_efficient_loading",
        "final_state_dict_type",
        "forward_prefetch",
        "limit_all_gathers",
        "min_num_params",
        "state_dict_type",
        "sync_module_states",
        "transformer_layer_cls_to_wrap",
        "use_orig_params",
        "xla",
        "xla_fsdp_grad_ckpt",
        "xla_fsdp_settings",
        "backward_prefetch_policy",
    ]
)
FSDP = {
    **under("fsdp_config", SHARDED),
    **under("fsdp_config", {f"fsdp_{name}": word for name, word in SHARDED.items()}),
}
AXES = under(
    "parallelism_config",
    {
        "tp_size": "tensor",
        "cp_size": "context",
        "sp_size": "heads",
        "dp_shard_size": "shard",
        "dp_replicate_size": "replicate",
    },
)
LORA = {
    "use_peft": "use_lora",
    "lora_r": "lora_rank",
    "lora_target_modules": "lora_targets",
    "lora_dropout": "lora_dropout",
    "lora_modules_to_save": "lora_whole",
    "use_dora": "lora_dora",
    "load_in_4bit": "in_4_bits",
    "load_in_8bit": "in_8_bits",
    "use_bnb_nested_quant": "nested_scales",
    "attn_implementation": "attention",
}
_TRL_BESIDE = """
    model_name_or_path model_revision trust_remote_code lora_alpha lora_task_type use_rslora
    bnb_4bit_quant_type bnb_4bit_quant_storage dataset_name dataset_config
    dataset_train_split dataset_test_split dataset_streaming dataset_num_proc dataset_text_field
    dataset_kwargs dataset_mixer packing packing_strategy padding_free eos_token pad_token
    pad_to_multiple_of chat_template chat_template_path assistant_only_loss completion_only_loss
    gradient_checkpointing_use_reentrant ignore_bias_buffers datasets eval_packing
    model_init_kwargs loss_type beta reference_free
    system_prompt preprocessing_num_workers bnb_4bit_compute_dtype
"""
HF_TRAINER = Format(
    name="hf-trainer",
    title="the Trainer",
    signature=(("per_device_train_batch_size",),),
    sets={
        **TRAINING,
        "activation_checkpointing": "checkpointing",
        "gradient_checkpointing": "older_checkpointing",
        "fsdp": "fsdp_switch",
        **FSDP,
        **AXES,
        **LORA,
        **_LOADED,
        # Those of `accelerate launch`, whose command takes the program's too.
        "use_fsdp": "fsdp_switch",
        "fsdp_sharding_strategy": "sharding",
        "fsdp_reshard_after_forward": "reshard",
        "fsdp_offload_params": "offload",
        "fsdp_activation_checkpointing": "fsdp_checkpointing",
        "mixed_precision": "precision",
        "max_prompt_length": "prompt_length",
        "max_completion_length": "response_length",
        "max_length": "sequence_length",
        "max_seq_length": "sequence_length",
    },
    unpriced={
        "num_generations": "sampling is not priced, the training step is",
        "use_vllm": "sampling is not priced, the training step is",
        "activation_offloading": "TRL moves activations to the host, which is not priced",
        "auto_find_batch_size": "the batch is priced as it is stated",
        "accelerator_config.split_batches": "each device is priced with the whole batch",
        "config_file": "what Accelerate's file says of sharding is not in this one",
        "use_logits_to_keep": "logits of prompts that are not computed are priced",
    },
    refused=dict.fromkeys(
        ("use_deepspeed", "zero_stage", "offload_optimizer_device"),
        "give the DeepSpeed configuration with the same values",
    ),
    beside=f"{BESIDE} {FSDP_BESIDE} {_TRL_BESIDE} "
    "parallelism_config.cp_backend parallelism_config.sp_backend",
    assumed={"micro_batch": 8, "lora_rank": 16},
    # With tensor parallelism transformers shards the model as it loads it, as ZeRO 3. Trained
    # weights under FSDP and mixed precision are in 32 bits: Accelerate 1.15, `utils/fsdp_utils.py`.
    fixed={"sharded_with_tensor": True, "widened_where_sharded": True},
)
# Arguments of TRL's own since 0.20, whose programs checkpoint and train in bf16 by themselves.
_OF_TRL = """
    assistant_only_loss chat_template_path completion_only_loss dataset_text_field
    dataset_train_split max_completion_length max_length max_prompt_length num_generations
    packing_strategy padding_free
"""
TRL = replace(
    HF_TRAINER,
    name="trl",
    title="TRL",
    signature=(
        ("use_peft",),
        *((name, "per_device_train_batch_size") for name in _OF_TRL.split()),
    ),
    assumed={
        **HF_TRAINER.assumed,
        "bf16": True,
        "older_checkpointing": True,
        "sequence_length": 1024,
    },
)
