"""MaxText: YAML or `key=value` arguments over its `base.yml`.

An axis has a part within a slice (`ici_`) and one between slices (`dcn_`). Names and defaults
are of
MaxText's `configs/base.yml`, 2025.
"""

from __future__ import annotations

from planner.importers.training.format import Format

_RECOMPUTED_IN_PART = {"minimal", "minimal_flash", "save_qkv_proj", "save_dot_except_mlp"}


def _kept(policy: object) -> object:
    """Return how a policy of rematerialisation checkpoints activations."""
    name = str(policy)
    if name in _RECOMPUTED_IN_PART or name.startswith(("minimal", "save_dot", "save_qkv", "qkv_")):
        return "selective"
    if name == "none":
        return False
    return "offload" if name.endswith("offloaded") else name


MAXTEXT = Format(
    name="maxtext",
    title="MaxText",
    signature=(
        ("per_device_batch_size", "max_target_length"),
        ("per_device_batch_size", "remat_policy"),
        ("ici_fsdp_parallelism",),
        ("ici_tensor_parallelism",),
    ),
    sets={
        "per_device_batch_size": "micro_batch_per_device",
        "gradient_accumulation_steps": "accumulation",
        "max_target_length": "sequence_length",
        "dtype": "precision",
        "weight_dtype": "states_precision",
        "quantization": "fp8",
        "remat_policy": "checkpointing",
        "opt_type": "optimizer",
        "optimizer_memory_host_offload": "offload_optimizer",
        "parameter_memory_host_offload": "offload_parameters",
        "gradient_clipping_threshold": "clipping",
        "attention": "attention",
        **{
            f"{kind}_{axis}_parallelism": f"{word}*"
            for kind in ("ici", "dcn")
            for axis, word in (
                ("data", "replicate"),
                ("fsdp", "shard"),
                ("tensor", "tensor"),
                ("context", "context"),
                ("expert", "expert* expert_axis"),
                ("pipeline", "pipeline"),
            )
        },
        "num_pipeline_microbatches": "pipeline_micro_batches",
        "num_layers_per_pipeline_stage": "pipeline_layers_per_stage",
        "pipeline_parallel_layers": "pipelined_layers",
        "base_num_decoder_layers": "layers",
        "base_emb_dim": "width",
    },
    refused={
        f"{kind}_{axis}_parallelism": "leave it 1: it is no axis that is modelled"
        for kind in ("ici", "dcn")
        for axis in (
            "sequence",
            "tensor_transpose",
            "tensor_sequence",
            "fsdp_transpose",
            "autoregressive",
        )
    },
    beside="""
        base_config base_output_directory run_name model_name tokenizer_path tokenizer_type
        dataset_type
        dataset_path steps enable_checkpointing async_checkpointing scan_layers
        profiler profiler_steps skip_first_n_steps_for_profiler hardware hf_path hf_access_token
        learning_rate learning_rate_schedule_steps per_device_eval_batch_size reuse_example_batch
        decoder_block megablox sparse_matmul capacity_factor max_prefill_predict_length
        logits_dot_in_fp32
        log_period metrics_file enable_goodput_recording monitor_goodput packing shardy
        use_iota_embed sa_block_q sa_block_kv grad_dtype checkpoint_period load_parameters_path
        num_pipeline_repeats scan_pipeline_iterations scan_pipeline_repeats
        scan_layers_per_stage set_remat_policy_on_pipeline_iterations
        set_remat_policy_on_layers_per_stage
        base_num_query_heads base_num_kv_heads base_mlp_dim head_dim vocab_size num_slices
    """,
    assumed={
        "precision": "bfloat16",
        "micro_batch_per_device": 12,
        "sequence_length": 2048,
        "checkpointing": "full",
        "pipeline_layers_per_stage": 1,
    },
    fixed={"zero_stage": 3, "schedule": "gpipe"},
    convert={"remat_policy": _kept},
    unpriced={
        "context_parallel_strategy": "keys and values are priced as passed round a ring",
        "pipeline_delay_activation_forwarding": "messages are priced as sent at once",
        "pipeline_fsdp_ag_once": "parameters are priced as gathered for each micro-batch",
    },
    notes=("MaxText runs on JAX, which is priced as torch",),
)
