"""Megatron-Core's fields as keys, which the frameworks on it share.

Names are those of `ModelParallelConfig`, `TransformerConfig` and `DistributedDataParallelConfig` of
Megatron-Core 0.16, and of `megatron/training/arguments.py` of Megatron-LM 0.19.2.
"""

from __future__ import annotations

MODEL = {
    "tensor_model_parallel_size": "--tensor-model-parallel-size",
    "pipeline_model_parallel_size": "--pipeline-model-parallel-size",
    "virtual_pipeline_model_parallel_size": "--num-virtual-stages-per-pipeline-rank",
    "num_virtual_stages_per_pipeline_rank": "--num-virtual-stages-per-pipeline-rank",
    "num_layers_per_virtual_pipeline_stage": "--num-layers-per-virtual-pipeline-stage",
    "pipeline_model_parallel_layout": "--pipeline-model-parallel-layout",
    "num_layers_in_first_pipeline_stage": "--decoder-first-pipeline-num-layers",
    "num_layers_in_last_pipeline_stage": "--decoder-last-pipeline-num-layers",
    "decoder_first_pipeline_num_layers": "--decoder-first-pipeline-num-layers",
    "decoder_last_pipeline_num_layers": "--decoder-last-pipeline-num-layers",
    "account_for_embedding_in_pipeline_split": "--account-for-embedding-in-pipeline-split",
    "account_for_loss_in_pipeline_split": "--account-for-loss-in-pipeline-split",
    "context_parallel_size": "--context-parallel-size",
    "cp_comm_type": "--cp-comm-type",
    "expert_model_parallel_size": "--expert-model-parallel-size",
    "expert_tensor_parallel_size": "--expert-tensor-parallel-size",
    "sequence_parallel": "--sequence-parallel",
    "tp_comm_overlap": "--tp-comm-overlap",
    "seq_length": "--seq-length",
    "recompute_granularity": "--recompute-granularity",
    "recompute_method": "--recompute-method",
    "recompute_num_layers": "--recompute-num-layers",
    "recompute_modules": "--recompute-modules",
    "cpu_offloading_num_layers": "--cpu-offloading-num-layers",
    "moe_token_dispatcher_type": "--moe-token-dispatcher-type",
    "num_layers": "--num-layers",
    "hidden_size": "--hidden-size",
    "num_attention_heads": "--num-attention-heads",
    "num_query_groups": "--num-query-groups",
    "kv_channels": "--kv-channels",
    "ffn_hidden_size": "--ffn-hidden-size",
    "num_moe_experts": "--num-experts",
    "moe_router_topk": "--moe-router-topk",
    "cross_entropy_loss_fusion": "--cross-entropy-loss-fusion",
    "attention_backend": "attention",
    "attention_dropout": "--attention-dropout",
    "hidden_dropout": "--hidden-dropout",
}
BATCH = {
    "micro_batch_size": "--micro-batch-size",
    "global_batch_size": "--global-batch-size",
}
STATES = {
    "use_distributed_optimizer": "--use-distributed-optimizer",
    "num_distributed_optimizer_instances": "--num-distributed-optimizer-instances",
    "overlap_grad_reduce": "--overlap-grad-reduce",
    "use_megatron_fsdp": "--use-megatron-fsdp",
    "use_torch_fsdp2": "--use-torch-fsdp2",
    "data_parallel_sharding_strategy": "--data-parallel-sharding-strategy",
    "optimizer_cpu_offload": "--optimizer-cpu-offload",
    "optimizer_offload_fraction": "--optimizer-offload-fraction",
    "clip_grad": "clipping",
}
# Where no recipe of precision says it as well, which would hold.
GRADIENTS = {
    "grad_reduce_in_bf16": "--grad-reduce-in-bf16",
    "grad_reduce_in_fp32": "!--grad-reduce-in-bf16",
}
OF_THE_RECIPE = "the recipe of precision says it as well, and holds"
# What `OptimizerConfig` has where a file says nothing, and no argument has 1 in its place.
OFFLOADED_RATIO = {"--optimizer-offload-fraction": 0}

NUMBERS = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}
# Keys of the model, the schedule of the learning rate, logging, data and kernels of Megatron-Core.
BESIDE = """
    account_for_mtp add_bias_linear add_position_embedding adam_beta1 adam_beta2 adam_eps
    apply_layernorm_1p apply_query_key_layer_scaling apply_rope_fusion
    attention_softmax_in_fp32 average_in_collective batch_p2p_comm bias
    bias_activation_fusion bias_dropout_fusion bias_gelu_fusion ckpt_format
    cross_entropy_fusion_impl data_cache_path data_path dataloader_type
    decoupled_lr deterministic_mode disable_bias_linear distribute_saved_activations
    end_weight_decay eval_interval eval_iters finetune gradient_accumulation_fusion
    init_method_std layernorm_epsilon
    layernorm_zero_centered_gamma load log_interval lr lr_decay_iters lr_decay_style
    lr_warmup_fraction
    lr_warmup_init lr_warmup_iters make_vocab_size_divisible_by masked_softmax_fusion
    max_position_embeddings
    min_lr mock_data moe_aux_loss_coeff moe_flex_dispatcher_backend moe_grouped_gemm
    moe_permute_fusion
    moe_router_load_balancing_type no_load_optim no_load_rng no_save_optim
    no_save_rng
    norm_epsilon normalization num_workers
    overlap_param_gather parallel_output params_dtype persist_layer_norm pipeline_dtype
    position_embedding_type qk_layernorm rope_fusion rotary_base rotary_percent
    save save_interval seed share_embeddings_and_output_weights split start_weight_decay swiglu
    tensorboard_dir tokenizer_model tokenizer_type train_iters train_samples
    transformer_impl untie_embeddings_and_output_weights use_flash_attn
    use_te_rng_tracker vocab_size weight_decay weight_decay_incr_style num_moe_layers
    moe_router_dtype moe_router_bias_update_rate moe_router_score_function moe_z_loss_coeff
    moe_shared_expert_intermediate_size moe_ffn_hidden_size
"""


def beside_under(*sections: str) -> str:
    """Return the keys that say nothing of a step, as they stand in sections."""
    return " ".join(f"{section}.{name}" for section in sections for name in BESIDE.split())
