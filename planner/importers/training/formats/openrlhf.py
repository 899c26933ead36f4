"""OpenRLHF: arguments of `openrlhf.cli.train_sft` and its like, which run on DeepSpeed.

Names are of OpenRLHF 0.9, `openrlhf/cli`.
"""

from __future__ import annotations

from planner.importers.training.format import Format
from planner.schema.job import Stack

OPENRLHF = Format(
    name="openrlhf",
    title="OpenRLHF",
    signature=(
        ("zero_stage", "micro_train_batch_size"),
        ("zero_stage", "train_batch_size", "pretrain"),
        ("micro_train_batch_size", "pretrain"),
    ),
    sets={
        "zero_stage": "zero_stage",
        "micro_train_batch_size": "micro_batch",
        "train_batch_size": "global_batch",
        "max_len": "sequence_length",
        "prompt_max_len": "prompt_length",
        "generate_max_len": "response_length",
        "bf16": "bf16",
        "fp16": "fp16",
        "param_dtype": "precision",
        "gradient_checkpointing": "checkpointing",
        "adam_offload": "offload_optimizer",
        "ring_attn_size": "context",
        "ds_tensor_parallel_size": "tensor",
        "lora_rank": "lora_rank",
        "lora_dropout": "lora_dropout",
        "target_modules": "lora_targets",
        "load_in_4bit": "in_4_bits",
        "use_liger_kernel": "liger",
        "max_norm": "clipping",
        "attn_implementation": "attention",
        "actor_num_nodes": "node_count",
        "actor_num_gpus_per_node": "devices_per_node",
    },
    unpriced={
        "zpg": "the second copy of parameters within a node is not priced",
        "overlap_comm": "communication is priced as DeepSpeed's by default",
        "colocate_all_models": "sampling and other models are not priced, the training step is",
        "vllm_num_engines": "sampling is not priced, the training step is",
    },
    beside="""
        pretrain dataset input_key output_key input_template apply_chat_template max_samples
        save_path
        save_steps logging_steps eval_steps max_epochs learning_rate lr_scheduler lr_warmup_ratio
        l2 adam_betas seed flash_attn packing_samples use_wandb wandb_project wandb_org wandb_group
        wandb_run_name use_tensorboard load_checkpoint ckpt_path max_ckpt_num max_ckpt_mem
        disable_fast_tokenizer gradient_checkpointing_use_reentrant ring_head_stride lora_alpha
        grad_accum_dtype ref_num_nodes ref_num_gpus_per_node critic_num_nodes
        critic_num_gpus_per_node
        reward_num_nodes reward_num_gpus_per_node vllm_tensor_parallel_size
        vllm_gpu_memory_utilization
        micro_rollout_batch_size rollout_batch_size n_samples_per_prompt prompt_data
        advantage_estimator
        init_kl_coef actor_learning_rate critic_learning_rate normalize_reward reward_pretrain
        remote_rm_url num_episodes beta pretrain_mode dataset_probs save_hf_ckpt disable_ds_ckpt
        local_rank enforce_eager enable_prefix_caching temperature top_p eval_dataset
    """,
    assumed={"micro_batch": 1, "lora_targets": "all-linear"},
    stack=Stack.DEEPSPEED,
)
