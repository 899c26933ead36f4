"""nanotron: YAML of its trainer.

Names are of nanotron's main branch, `src/nanotron/config`.
"""

from __future__ import annotations

from planner.importers.training.format import Format, under

NANOTRON = Format(
    name="nanotron",
    title="nanotron",
    signature=(
        ("parallelism.dp", "parallelism.tp", "parallelism.pp"),
        ("parallelism.dp", "tokens.micro_batch_size"),
    ),
    sets={
        **under(
            "parallelism",
            {
                "dp": "data",
                "pp": "pipeline",
                "tp": "tensor",
                "context_parallel_size": "context",
                "pp_engine": "schedule",
                "tp_mode": "sequence_parallel",
                "tp_linear_async_communication": "overlapped_tensor_parallel",
                "tp_recompute_allgather": "regathered_rows",
                "recompute_layer": "checkpointing",
            },
        ),
        "tokens.micro_batch_size": "micro_batch",
        "tokens.batch_accumulation_per_replica": "accumulation",
        "tokens.sequence_length": "sequence_length",
        "optimizer.zero_stage": "zero_stage",
        "optimizer.clip_grad": "clipping",
        "optimizer.accumulate_grad_in_fp32": "!narrow_states",
        "optimizer.optimizer_factory.name": "optimizer",
        "model.dtype": "precision",
        "model.model_config.num_hidden_layers": "layers",
        "model.model_config.hidden_size": "width",
    },
    unpriced={
        "parallelism.moe_layer_recompute": "experts are not recomputed apart from their block",
        "model.model_config.z_loss_enabled": "it is not priced",
        "model.model_config._use_doc_masking": "sequences are priced as one document each",
    },
    refused={
        "parallelism.expert_parallel_size": "use 1: experts on ranks of their own are not modelled",
    },
    beside="""
        checkpoints data_stages general lighteval logging profiler s3_upload tokenizer
        metrics_logging
        model.ddp_bucket_cap_mb model.init_method model.make_vocab_size_divisible_by
        model.model_config.* model.model_config.num_attention_heads
        optimizer.learning_rate_scheduler
        optimizer.optimizer_factory.adam_beta1 optimizer.optimizer_factory.adam_beta2
        optimizer.optimizer_factory.adam_eps optimizer.optimizer_factory.torch_adam_is_fused
        optimizer.weight_decay optimizer.weight_decay_exclude_named_params tokens.*
    """,
    fixed={"copied_rows": False},  # parallel/tensor_parallel: along the first dimension
    assumed={
        "zero_stage": 0,
        "schedule": "afab",
        "precision": "bfloat16",
        "regathered_rows": True,
    },
    convert={
        "optimizer.clip_grad": lambda norm: norm or 0,  # null clips nothing
        "parallelism.tp_mode": lambda mode: str(mode).upper() == "REDUCE_SCATTER",
    },
)
