"""DeepSpeed's own keys: those that `planner.importers.training.deepspeed` reads, and those beside.

Names are of DeepSpeed 0.19.8, `runtime/config.py`, `runtime/zero/config.py` and
`offload_config.py`.
"""

from __future__ import annotations

from planner.importers.training.format import Format

_READ = """
    train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps gradient_clipping
    sequence_parallel_size tensor_parallel.autotp_size
    bf16.enabled bfloat16.enabled fp16.enabled amp.enabled optimizer.type pipeline
    activation_checkpointing.cpu_checkpointing activation_checkpointing.number_checkpoints
    zero_optimization.stage zero_optimization.overlap_comm
    zero_optimization.mics_shard_size zero_optimization.cpu_offload
    zero_optimization.cpu_offload_params zero_optimization.zero_hpz_partition_size
    zero_optimization.zero_quantized_weights zero_optimization.zero_quantized_gradients
    zero_optimization.zenflow
    zero_optimization.offload_optimizer.device zero_optimization.offload_optimizer.ratio
    zero_optimization.offload_optimizer.super_offload zero_optimization.offload_param.device
"""
_BESIDE = """
    prescale_gradients gradient_predivide_factor sparse_gradients amp
    zero_allow_untested_optimizer zero_force_ds_cpu_optimizer steps_per_print wall_clock_breakdown
    dump_state flops_profiler autotuning data_efficiency curriculum_learning
    tensorboard wandb csv_monitor comet monitor_config comms_logger checkpoint
    elasticity aio eigenvalue disable_allgather
    memory_breakdown
    timers nebula load_universal scheduler optimizer.params optimizer.legacy_fusion
    use_data_before_expert_parallel_ graph_harvesting dataloader_drop_last data_types
    fp16.loss_scale fp16.loss_scale_window fp16.initial_scale_power fp16.hysteresis
    fp16.min_loss_scale fp16.auto_cast fp16.consecutive_hysteresis
    bf16.auto_cast bf16.immediate_grad_update bf16.check_grad_overflow bf16.loss_scale
    bf16.initial_scale_power bf16.loss_scale_window bf16.hysteresis bf16.min_loss_scale
    activation_checkpointing.contiguous_memory_optimization
    activation_checkpointing.synchronize_checkpoint_boundary activation_checkpointing.profile
    tensor_parallel.tp_grain_size tensor_parallel.preset_model tensor_parallel.partition_config
    zero_optimization.contiguous_gradients
    zero_optimization.reduce_scatter zero_optimization.reduce_bucket_size
    zero_optimization.allgather_partitions zero_optimization.allgather_bucket_size
    zero_optimization.round_robin_gradients zero_optimization.sub_group_size
    zero_optimization.stage3_max_live_parameters zero_optimization.stage3_max_reuse_distance
    zero_optimization.stage3_prefetch_bucket_size
    zero_optimization.stage3_param_persistence_threshold
    zero_optimization.stage3_model_persistence_threshold
    zero_optimization.stage3_module_granularity_threshold
    zero_optimization.stage3_use_all_reduce_for_fetch_params
    zero_optimization.stage3_gather_16bit_weights_on_model_save
    zero_optimization.stage3_gather_fp16_weights_on_model_save
    zero_optimization.use_multi_rank_bucket_allreduce zero_optimization.ignore_unused_parameters
    zero_optimization.legacy_stage1 zero_optimization.load_from_fp32_weights
    zero_optimization.elastic_checkpoint zero_optimization.cpu_offload_use_pin_memory
    zero_optimization.memory_efficient_linear zero_optimization.param_persistence_threshold
    zero_optimization.model_persistence_threshold zero_optimization.max_live_parameters
    zero_optimization.max_reuse_distance zero_optimization.prefetch_bucket_size
    zero_optimization.gather_16bit_weights_on_model_save zero_optimization.log_trace_cache_warnings
    zero_optimization.mics_hierarchical_params_gather zero_optimization.pipeline_loading_checkpoint
    zero_optimization.override_module_apply zero_optimization.enable_sanity_checks
    zero_optimization.offload_optimizer.pin_memory zero_optimization.offload_optimizer.buffer_count
    zero_optimization.offload_optimizer.fast_init zero_optimization.offload_optimizer.nvme_path
    zero_optimization.offload_optimizer.pipeline_read
    zero_optimization.offload_optimizer.pipeline_write
    zero_optimization.offload_optimizer.pipeline
    zero_optimization.offload_optimizer.cpuadam_cores_perc
    zero_optimization.offload_param.pin_memory zero_optimization.offload_param.buffer_count
    zero_optimization.offload_param.buffer_size zero_optimization.offload_param.max_in_cpu
    zero_optimization.offload_param.nvme_path
"""
_NOT_PRICED = "is not priced"
DEEPSPEED_KEYS = Format(
    name="deepspeed",
    title="DeepSpeed",
    signature=(("zero_optimization",),),
    sets={path: path for path in _READ.split()},
    unpriced={
        "compression_training": _NOT_PRICED,
        "progressive_layer_drop": "all layers are priced",
        "hybrid_engine": "generation is not priced",
        "weight_quantization": _NOT_PRICED,
        "compile": "compiled kernels are priced as those of the stack",
        "torch_autocast": "its mixture is not priced",
        "data_types.grad_accum_dtype": "gradients are priced as DeepSpeed keeps them by default",
        "fp16.fp16_master_weights_and_grads": "masters are priced in 32 bits",
        "communication_data_type": "messages are priced in the format of gradients",
        "seq_parallel_communication_data_type": "messages are priced in the format of rows",
        "fp32_allreduce": "messages are priced in the format of gradients",
        "sparse_attention": "attention is priced whole",
        "curriculum_learning.enabled": "steps of whole sequences are priced",
        "data_efficiency.enabled": "steps of whole sequences are priced",
        "elasticity.enabled": "the batch is priced as the file or the job says it",
        "activation_checkpointing.partition_activations": "inputs are priced whole on every rank",
        "zero_optimization.zero_quantized_nontrainable_weights": "messages are priced whole",
    },
    beside=_BESIDE,
)
