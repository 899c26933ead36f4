"""MaxText: YAML or `key=value` arguments over its `base.yml`.

An axis has a part within a slice (`ici_`) and one between slices (`dcn_`). Names and defaults are
of MaxText's `configs/base.yml` and `types.py` of August 2026, what policies recompute of its
`layers/nnx_decoders.py`.
"""

from __future__ import annotations

from planner.errors import DocumentError
from planner.importers.training.format import Format

# Of those that keep all products and what attention gives, only norms and gates are recomputed.
_KEEPS_PRODUCTS = {"minimal_with_context", "minimal_flash", "minimal_with_context_and_quantization"}
_RECOMPUTES_IN_PART = ("minimal", "save_dot", "save_qkv", "save_out")


def _kept(policy: object) -> object:
    """Return how a policy of rematerialisation checkpoints activations.

    Raises:
        DocumentError: at `none`, which recomputes blocks whole where they are scanned, as they are
            unless told otherwise, and at `custom`, of which other keys say what it recomputes.
    """
    name = str(policy)
    if name in _KEEPS_PRODUCTS:
        return False
    if name.endswith("offloaded"):
        return "offload"
    if name in {"none", "custom"}:
        raise DocumentError(
            "leaves open what is recomputed",
            field="remat_policy",
            value=name,
            remedy="name a policy that says it: minimal_with_context, minimal or full",
        )
    return "selective" if name.startswith(_RECOMPUTES_IN_PART) else name


MAXTEXT = Format(
    name="maxtext",
    title="MaxText",
    signature=(
        ("per_device_batch_size", "max_target_length"),
        ("per_device_batch_size", "remat_policy"),
        ("base_config=base.yml",),
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
        "lora.enable_lora": "use_lora",
        "lora.lora_rank": "lora_rank",
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
        "context_parallel_strategy": "context_exchange",
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
            "context_autoregressive",
            "context_usp_ulysses",
            "diloco",
        )
    }
    | {
        "shard_optimizer_over_data": "use ici_fsdp_parallelism, or write a strategy of ZeRO 1",
        "enable_rampup_batch_size": "leave it out: the batch of a step is one number",
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
        use_iota_embed sa_block_q sa_block_kv checkpoint_period load_parameters_path
        num_pipeline_repeats scan_pipeline_iterations scan_pipeline_repeats
        scan_layers_per_stage set_remat_policy_on_pipeline_iterations
        set_remat_policy_on_layers_per_stage
        lora.* train_data_columns eval_data_columns hf_eval_split use_sft train_split use_multimodal
        sft_train_on_completion_only train_image_column eval_image_column dpo
        use_tunix_gradient_accumulation gcs_metrics max_segments_per_seq sa_block_q_dkv
        sa_block_q_dq warmup_steps_fraction
        learning_rate_final_fraction save_checkpoint_on_completion eval_interval eval_steps
        base_num_query_heads base_num_kv_heads base_mlp_dim head_dim vocab_size num_slices
    """,
    assumed={
        "precision": "bfloat16",
        "micro_batch_per_device": 12,
        "sequence_length": 2048,
        "checkpointing": "full",
        "context_exchange": "all_gather",
        "pipeline_layers_per_stage": 1,
    },
    fixed={"zero_stage": 3, "schedule": "gpipe"},
    convert={"remat_policy": _kept},
    unpriced={
        "freeze_vision_encoder_params": "it is priced as trained",
        "use_dpo": "the reference model is not priced, the training step is",
        "grad_dtype=bfloat16": "gradients are cast when they are whole: they are priced in 32 bits",
        "pipeline_delay_activation_forwarding": "messages are priced as sent at once",
        "pipeline_fsdp_ag_once": "parameters are priced as gathered for each micro-batch",
    },
    notes=("MaxText runs on JAX, which is priced as torch",),
)
