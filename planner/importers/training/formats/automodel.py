"""NeMo AutoModel: YAML of its recipes.

Names are of NeMo AutoModel 0.2, `nemo_automodel/components`.
"""

from __future__ import annotations

from planner.importers.training.format import Format, under

_STAGES = {
    "pipeline.layers_per_stage": "stage_layers",
    "pipeline.round_virtual_stages_to_pp_multiple": "stage_rounding",
}
AUTOMODEL = Format(
    name="nemo-automodel",
    title="NeMo AutoModel",
    signature=(
        ("step_scheduler", "distributed"),
        ("step_scheduler", "model._target_"),
    ),
    sets={
        "step_scheduler.global_batch_size": "global_batch",
        "step_scheduler.local_batch_size": "micro_batch",
        **under(
            "distributed",
            {
                "dp_size": "data",
                "dp_replicate_size": "replicate",
                "tp_size": "tensor",
                "cp_size": "context",
                "pp_size": "pipeline",
                "ep_size": "expert",
                "sequence_parallel": "sequence_parallel",
                "activation_checkpointing": "checkpointing",
                "pipeline.pp_schedule": "schedule",
                "pipeline.pp_microbatch_size": "pipeline_micro_batch",
                **_STAGES,
                "offload_policy": "offload",
            },
        ),
        "autopipeline.pp_schedule": "schedule",
        "autopipeline.pp_microbatch_size": "pipeline_micro_batch",
        **under("autopipeline", {name.rpartition(".")[2]: word for name, word in _STAGES.items()}),
        "model.backend.te_fp8.recipe": "fp8",
        "model.torch_dtype": "states_precision",
        "model.attn_implementation": "attention",
        "model.use_liger_kernel": "liger",
        "peft._target_": "adapter",
        "peft.dim": "lora_rank",
        "peft.dropout": "lora_dropout",
        "peft.target_modules": "lora_targets",
        "peft.match_all_linear": "lora_everywhere",
        "peft.use_dora": "lora_dora",
        "quantization.load_in_4bit": "in_4_bits",
        "quantization.load_in_8bit": "in_8_bits",
        "quantization.bnb_4bit_use_double_quant": "nested_scales",
        "fp8.enabled": "fp8",
        "compile.enabled": "compile",
        "optimizer._target_": "optimizer",
        "packed_sequence.packed_sequence_size": "sequence_length",
        "dataset.seq_len": "sequence_length",
        "dataset.seq_length": "sequence_length",
        "clip_grad_norm.max_norm": "clipping",
    },
    beside="""
        recipe step_scheduler.* dist_env rng checkpoint logger loss_fn dataset.* packed_sequence.*
        dataloader
        validation_dataset validation_dataloader optimizer lr_scheduler wandb mlflow benchmark
        model._target_ model.pretrained_model_name_or_path model.trust_remote_code model.force_hf
        model.use_sdpa_patching model.output_hidden_states model.backend model.cache_dir
        distributed._target_ distributed.strategy distributed.backend
        distributed.pipeline.* autopipeline.* peft.alpha peft.use_triton peft.exclude_modules
        peft.dropout_position peft.lora_A_init quantization fp8.* compile.* tokenizer ci
        clip_grad_norm optimizer.* model.backend model.config processor model.load_base_model
        distributed.moe.wrap_outer_model
    """,
    unpriced={
        "freeze_config": "all of it is priced as trained",
        "model.num_nextn_predict_layers": "layers of further tokens are not priced",
        "model.mtp_loss_scaling_factor": "layers of further tokens are not priced",
        "distributed.defer_fsdp_grad_sync": "gradients are priced as reduced after each one",
    },
    refused={"distributed.use_hf_tp_plan_only": "leave it out"},
    assumed={
        "precision": "bfloat16",
        "micro_batch": 1,
        "lora_rank": 8,
        "nested_scales": True,
    },
    fixed={"zero_stage": 3},
    convert={
        "peft._target_": lambda _: "lora",
        "packed_sequence.packed_sequence_size": lambda size: size or None,
    },
)
