"""GPT-NeoX: YAML or JSON of its launcher, DeepSpeed's keys among its own.

Keys may have dashes or underscores. Names are of GPT-NeoX 2.0, `megatron/neox_arguments`.
"""

from __future__ import annotations

from planner.importers.training.format import Format, under
from planner.schema.job import Stack

GPT_NEOX = Format(
    name="gpt-neox",
    title="GPT-NeoX",
    signature=(("pipe_parallel_size",), ("model_parallel_size", "train_micro_batch_size_per_gpu")),
    sets={
        "pipe_parallel_size": "pipeline",
        "model_parallel_size": "tensor",
        "context_parallel_size": "context",
        "sequence_parallel": "sequence_parallel",
        "moe_expert_parallel_size": "expert",
        "train_micro_batch_size_per_gpu": "micro_batch",
        "gradient_accumulation_steps": "accumulation",
        "train_batch_size": "global_batch",
        "seq_length": "sequence_length",
        "checkpoint_activations": "checkpointing",
        "precision": "precision",
        "gradient_clipping": "clipping",
        "optimizer.type": "optimizer",
        **under("fp16", {"enabled": "fp16", "fp16": "fp16"}),
        **under("bf16", {"enabled": "bf16", "bf16": "bf16"}),
        "zero_optimization.stage": "zero_stage",
        "zero_stage": "zero_stage",
        "zero_optimization.overlap_comm": "overlapped_gradients",
        "zero_optimization.cpu_offload": "offload_optimizer",
        "zero_optimization.offload_optimizer.device": "offload_optimizer",
        "zero_optimization.offload_param.device": "offload_parameters",
        "num_layers": "layers",
        "hidden_size": "width",
    },
    unpriced={
        "sparse_gradients": "gradients are priced whole",
        "checkpoint_num_layers": "checkpoints of several blocks are priced as one of each block",
        "num_experts": "the model given is priced, whose experts need not be as many",
        "moe_num_experts": "the model given is priced, whose experts need not be as many",
        "weight_server": "is not priced",
        "te_fp8_format": "products are priced in the file's other number format",
    },
    beside="""
        num_attention_heads num_kv_heads max_position_embeddings norm pos_emb rotary_pct
        rotary_emb_base
        no_weight_tying gpt_j_residual gpt_j_tied output_layer_parallelism
        scaled_upper_triang_masked_softmax_fusion bias_gelu_fusion rope_fusion layernorm_fusion
        rms_norm_epsilon rmsnorm_fusion layernorm_epsilon attention_config activation mlp_type
        init_method
        output_layer_init_method optimizer min_lr zero_optimization.allgather_partitions
        zero_optimization.allgather_bucket_size
        zero_optimization.reduce_scatter zero_optimization.reduce_bucket_size
        zero_optimization.contiguous_gradients zero_optimization.offload_optimizer
        zero_optimization.offload_param zero_optimization.stage3_prefetch_bucket_size
        zero_optimization.stage3_param_persistence_threshold zero_optimization.sub_group_size
        data_impl data_path split train_data_paths valid_data_paths test_data_paths vocab_file
        merge_file
        tokenizer_type save load checkpoint_validation_with_forward_pass partition_activations
        synchronize_each_layer contiguous_checkpointing weight_decay hidden_dropout
        attention_dropout
        fp16.loss_scale fp16.loss_scale_window fp16.initial_scale_power fp16.hysteresis
        fp16.min_loss_scale fp16.auto_cast bf16.auto_cast fp32_allreduce
        train_iters lr_decay_iters distributed_backend lr_decay_style warmup checkpoint_factor
        save_interval eval_interval eval_iters log_interval steps_per_print wall_clock_breakdown
        keep_last_n_checkpoints num_workers use_wandb wandb_project wandb_team wandb_group log_dir
        tensorboard_dir launcher deepspeed_slurm hostfile deepspeed_mpi comment include seed
        data_types
        make_vocab_size_divisible_by extra_save_iters use_bias_in_norms use_bias_in_attn_linear
        use_bias_in_mlp communication_data_type dynamic_loss_scale
        intermediate_size head_dim pipe_partition_method attention_softmax_in_fp32 finetune
        use_flashattn_swiglu use_cpu_initialization mlp_multiple_of log_grad_norm
        bf16.loss_scale bf16.loss_scale_window bf16.initial_scale_power bf16.hysteresis
        bf16.min_loss_scale
    """,
    assumed={"micro_batch": 1, "zero_stage": 0},
    stack=Stack.DEEPSPEED,
)
