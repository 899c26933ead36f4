"""torchtune: YAML of its distributed recipes, which shard with fully_shard.

Names are of torchtune 0.6, `recipes`. Bases of 4 bits are torchao's
(`modules/low_precision/nf4_linear.py`, `modules/peft/lora.py`).
"""

from __future__ import annotations

from planner.importers.training.format import Format


def _adapter_of(component: object) -> str:
    """Return how a builder such as `torchtune.models.llama3_1.lora_llama3_1_8b` trains."""
    name = str(component).rpartition(".")[2]
    return next((kind for kind in ("qlora", "lora") if name.startswith(f"{kind}_")), "full")


TORCHTUNE = Format(
    name="torchtune",
    title="torchtune",
    signature=(
        ("checkpointer._component_", "batch_size"),
        ("model._component_", "batch_size"),
    ),
    sets={
        "batch_size": "micro_batch",
        "gradient_accumulation_steps": "accumulation",
        "tokenizer.max_seq_len": "sequence_length",
        "dtype": "precision",
        "enable_activation_checkpointing": "checkpointing",
        "enable_activation_offloading": "offload_activations",
        "fsdp_cpu_offload": "offload",
        "fsdp.cpu_offload": "offload",
        "fsdp_reshard_after_forward": "reshard",
        "tensor_parallel_dim": "tensor",
        "context_parallel_dim": "context",
        "data_parallel_shard_dim": "shard",
        "data_parallel_replicate_dim": "replicate",
        "compile": "compile",
        "optimizer._component_": "optimizer",
        "clip_grad_norm": "clipping",
        "model._component_": "adapter",
        "model.lora_rank": "lora_rank",
        "model.lora_attn_modules": "lora_targets",
        "model.apply_lora_to_mlp": "lora_feed_forward",
        "model.apply_lora_to_output": "lora_whole",
        "model.lora_dropout": "lora_dropout",
        "model.quantize_base": "in_4_bits",
        "model.use_dora": "lora_dora",
        "loss._component_": "loss",
        "loss.num_output_chunks": "loss_chunks",
        "enable_fp8_training": "fp8",
    },
    unpriced={
        "optimizer_in_bwd": "the optimizer's steps within backward are priced after it",
        "custom_sharded_layers": "layers that are sharded apart are priced as the others",
        "ac_mode": "what is kept of a block is priced as by enable_activation_checkpointing",
        "quantizer": "training that is aware of quantization is priced without it",
    },
    beside="""
        output_dir tokenizer.* checkpointer resume_from_checkpoint save_adapter_weights_only
        dataset seed
        shuffle optimizer.* lr_scheduler loss epochs max_steps_per_epoch metric_logger
        log_every_n_steps log_peak_memory_stats log_level device profiler model.lora_alpha
        enable_async_checkpointing packed run_val_every_n_steps dataset_val batch_size_val
        cudnn_deterministic_mode num_warmup_steps tensor_parallel_plan save_last_epoch_only
        keep_last_n_checkpoints fp8_recipe_name
        activation_offloading_use_streams
    """,
    assumed={"accumulation": 1},
    fixed={"zero_stage": 3, "quantization_method": "torchao"},
    convert={"model._component_": _adapter_of, "dtype": lambda name: f"{name}-true"},
)
