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
    "mixed_precision": "gradients_precision",
}
_SECTIONS = ("fsdp_config", "parallelism_config.fsdp", "parallelism_config.fsdp2")


def reduced_format(kind: object) -> str | None:
    """Return the format in which gradients are reduced by `mixed_precision`: of `PURE` the narrow.

    Source: Composer 0.31, `distributed/mosaic_parallelism.py` (`get_mixed_precision`).
    """
    return "bf16" if str(kind).upper() == "PURE" else None


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
        **{path: word for one in _SECTIONS for path, word in under(one, _FSDP).items()},
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
        variables.* run_name model tokenizer train_loader eval_loader optimizer scheduler algorithms
        max_duration eval_interval eval_first eval_subset_num_batches seed device_eval_batch_size
        autoresume dist_timeout progress_bar log_to_console console_log_interval callbacks loggers
        save_interval save_num_checkpoints_to_keep save_folder save_overwrite load_path
        load_weights_only icl_seq_len icl_tasks global_seed data_local data_remote tokenizer_name
        python_log_level expandable_segments save_latest_filename
        algorithms.gradient_clipping.clipping_type model.init_device model.n_heads model.vocab_size
        model.expansion_ratio model.max_seq_len model.pretrained model.use_auth_token model.loss_fn
        model.pretrained_model_name_or_path model.config_overrides model.peft_config.lora_alpha
        model.peft_config.task_type model.attn_config.attn_uses_sequence_id
        fsdp_config.state_dict_type fsdp_config.limit_all_gathers
        fsdp_config.activation_checkpointing_reentrant fsdp_config.verbose
        fsdp_config.backward_prefetch
        fsdp_config.use_orig_params fsdp_config.sync_module_states fsdp_config.forward_prefetch
        fsdp_config.sharded_ckpt_prefix_dir fsdp_config.load_monolith_rank0_only
        parallelism_config.fsdp.state_dict_type
    """,
    assumed={"precision": "amp_bf16"},
    convert={
        "compile_config": lambda _: True,
        **dict.fromkeys((f"{one}.mixed_precision" for one in _SECTIONS), reduced_format),
    },
)
