"""llm-foundry: YAML of `scripts/train/train.py`, on Composer with FSDP.

Names are of llm-foundry 0.22 and Composer 0.31.
"""

from __future__ import annotations

from planner.importers.training.format import Format, under

_FSDP = {
    "sharding_strategy": "sharding",
    "activation_checkpointing": "checkpointing",
    "activation_cpu_offload": "offload_activations",
    "cpu_offload": "offload",
    "data_parallel_shard_degree": "shard",
    "data_parallel_replicate_degree": "replicate",
    "reshard_after_forward": "reshard",
}
LLM_FOUNDRY = Format(
    name="llm-foundry",
    title="llm-foundry",
    signature=(
        ("device_train_microbatch_size", "global_train_batch_size"),
        ("global_train_batch_size", "fsdp_config"),
        ("global_train_batch_size", "max_seq_len"),
    ),
    sets={
        "global_train_batch_size": "global_batch",
        "device_train_microbatch_size": "micro_batch",
        "max_seq_len": "sequence_length",
        "variables.max_seq_len": "sequence_length",
        "precision": "precision",
        **under("fsdp_config", _FSDP),
        **under("parallelism_config.fsdp", _FSDP),
        **under("parallelism_config.fsdp2", _FSDP),
        "tp_config.tensor_parallel_degree": "tensor",
        "parallelism_config.tp.tensor_parallel_degree": "tensor",
        "model.peft_config.peft_type": "adapter",
        "model.peft_config.r": "lora_rank",
        "model.peft_config.lora_dropout": "lora_dropout",
        "model.peft_config.target_modules": "lora_targets",
        "optimizer.name": "optimizer",
        "algorithms.gradient_clipping.clipping_threshold": "clipping",
        "compile_config": "compile",
        "model.n_layers": "layers",
        "model.d_model": "width",
        "model.attn_config.attn_impl": "attention",
    },
    unpriced={
        "algorithms.low_precision_layernorm": "norms are priced as the stack has them",
    },
    beside="""
        variables run_name model tokenizer train_loader eval_loader optimizer scheduler algorithms
        max_duration eval_interval eval_first eval_subset_num_batches seed device_eval_batch_size
        autoresume dist_timeout progress_bar log_to_console console_log_interval callbacks loggers
        save_interval save_num_checkpoints_to_keep save_folder save_overwrite load_path
        load_weights_only icl_seq_len icl_tasks global_seed data_local data_remote tokenizer_name
        python_log_level expandable_segments save_latest_filename
        fsdp_config.mixed_precision fsdp_config.state_dict_type fsdp_config.limit_all_gathers
        fsdp_config.activation_checkpointing_reentrant fsdp_config.verbose
        fsdp_config.backward_prefetch
        fsdp_config.use_orig_params fsdp_config.sync_module_states fsdp_config.forward_prefetch
        fsdp_config.sharded_ckpt_prefix_dir fsdp_config.load_monolith_rank0_only
        parallelism_config.fsdp.mixed_precision parallelism_config.fsdp.state_dict_type
    """,
    assumed={"precision": "amp_bf16"},
    convert={"compile_config": lambda _: True},
)
