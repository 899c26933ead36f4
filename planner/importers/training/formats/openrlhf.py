"""OpenRLHF: arguments of `openrlhf.cli.train_sft` and its like, which run on DeepSpeed.

Names are of OpenRLHF 0.9, and those in sections (`--ds.zero_stage`) of its main branch of August
2026, `openrlhf/cli`.
"""

from __future__ import annotations

from planner.importers.training.format import Format, under
from planner.schema.job import Stack

_UNPRICED = {
    "zpg": "the second copy of parameters within a node is not priced",
    "grad_accum_dtype": "gradients are priced as DeepSpeed adds them by default",
}
OPENRLHF_SECTIONS = Format(
    name="openrlhf",
    title="OpenRLHF",
    signature=(
        ("ds.zero_stage", "train.batch_size"),
        ("ds.zero_stage", "train.micro_batch_size"),
        ("ds", "train", "ckpt.output_dir"),
    ),
    sets={
        **under(
            "ds",
            {
                "zero_stage": "zero_stage",
                "param_dtype": "precision",
                "overlap_comm": "overlapped_gradients",
                "adam_offload": "offload_optimizer",
                "tensor_parallel_size": "tensor",
                "ring_attn_size": "context",
                "use_liger_kernel": "liger",
                "attn_implementation": "attention",
                "load_in_4bit": "in_4_bits",
                "lora.rank": "lora_rank",
                "lora.dropout": "lora_dropout",
                "lora.target_modules": "lora_targets",
            },
        ),
        "train.batch_size": "global_batch",
        "train.micro_batch_size": "micro_batch",
        "train.dynamic_batch_enable": "batches_by_tokens",
        "train.max_tokens_per_gpu": "micro_batch_tokens",
        "data.max_len": "sequence_length",
        "model.gradient_checkpointing_enable": "checkpointing",
        "actor.gradient_checkpointing_enable": "checkpointing",
        "actor.num_nodes": "node_count",
        "actor.num_gpus_per_node": "devices_per_node",
        "optim": "optimizer",
        "max_norm": "clipping",
    },
    unpriced={
        **under("ds", _UNPRICED),
        "ds.deepcompile": "what DeepSpeed compiles is priced as it is without",
        "train.colocate_all": "sampling and other models are not priced, the training step is",
        "vllm.num_engines": "sampling is not priced, the training step is",
        "actor.freeze_visual_encoder": "it is priced as trained",
    },
    beside="""
        ref reward critic vllm rollout algo ckpt logger eval data adam muon model actor train
        lr_scheduler lr_warmup_ratio min_lr_ratio use_ms local_rank
        actor.adam actor.muon actor.model_name_or_path actor.gradient_checkpointing_reentrant
        actor.aux_loss_coef actor.eps_clip actor.eps_clip_low_high actor.dual_clip
        actor.policy_loss_type actor.entropy_coef actor.lr_scheduler actor.lr_warmup_ratio
        actor.min_lr_ratio actor.max_norm model.model_name_or_path model.aux_loss_coef
        model.gradient_checkpointing_reentrant model.pretrain_mode_enable model.ref_offload
        data.dataset data.dataset_probs data.dataset_split data.input_key data.output_key
        data.label_key data.chosen_key data.rejected_key model.beta data.input_template
        data.apply_chat_template data.max_samples data.multiturn data.prompt_dataset
        data.prompt_probs data.prompt_split data.tokenizer_chat_template
        data.disable_fast_tokenizer data.dataloader_num_workers data.image_key
        data.max_images_per_prompt train.max_epochs train.seed train.full_determinism_enable
        train.num_episodes train.enable_ema train.ema_beta train.colocate_actor_ref
        train.colocate_critic_reward train.async_enable train.async_queue_size
        train.partial_rollout_enable train.agent_func_path
        ds.packing_samples ds.enable_sleep ds.use_universal_ckpt ds.ring_attn_head_stride
        ds.lora.alpha ds.experts_implementation ds.value_head_prefix
    """,
    assumed={
        "micro_batch": 1,
        "zero_stage": 2,
        "precision": "bf16",
        "sequence_length": 2048,
        "lora_targets": "all-linear",
    },
    fixed={"nested_scales": True},
    stack=Stack.DEEPSPEED,
)
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
        "overlap_comm": "overlapped_gradients",
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
        **_UNPRICED,
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
        ref_num_nodes ref_num_gpus_per_node critic_num_nodes
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
    fixed={"nested_scales": True},
    stack=Stack.DEEPSPEED,
)
