"""Accelerate: YAML of `accelerate config` for FSDP of either version, and for replicas.

Keys are of Accelerate 1.15.0, `commands/config/config_args.py`. The batch stands in comments, which
are read as if they were keys (`planner.importers.training.hugging_face`).
"""

from __future__ import annotations

from planner.importers.training.format import Format, under
from planner.importers.training.formats.hf_trainer import SHARDED

_PLUGIN_READ = """
    distributed_type mixed_precision num_processes num_machines deepspeed_config.zero_stage
    deepspeed_config.deepspeed_config_file deepspeed_config.gradient_accumulation_steps
    deepspeed_config.gradient_clipping deepspeed_config.offload_optimizer_device
    deepspeed_config.offload_param_device parallelism_config.parallelism_config_sp_size
    megatron_lm_config.megatron_lm_tp_degree megatron_lm_config.megatron_lm_pp_degree
    megatron_lm_config.megatron_lm_num_micro_batches
    megatron_lm_config.megatron_lm_sequence_parallelism
    megatron_lm_config.megatron_lm_recompute_activations
    megatron_lm_config.megatron_lm_use_distributed_optimizer
"""
_PLUGIN_BESIDE = """
    compute_environment debug downcast_bf16 dynamo_config enable_cpu_affinity machine_rank
    main_process_ip main_process_port main_training_function rdzv_backend same_network use_cpu
    tpu_env tpu_use_cluster tpu_use_sudo gpu_ids fsdp_config
    deepspeed_config.zero3_init_flag deepspeed_config.zero3_save_16bit_model
    deepspeed_config.deepspeed_multinode_launcher deepspeed_config.deepspeed_hostfile
    deepspeed_config.offload_optimizer_nvme_path deepspeed_config.offload_param_nvme_path
    deepspeed_config.deepspeed_inclusion_filter deepspeed_config.deepspeed_exclusion_filter
    megatron_lm_config.megatron_lm_gradient_clipping
    parallelism_config.parallelism_config_sp_backend
    parallelism_config.parallelism_config_sp_seq_length
    parallelism_config.parallelism_config_sp_seq_length_is_variable
    parallelism_config.parallelism_config_sp_attn_implementation
    parallelism_config.parallelism_config_dp_shard_size
    deepspeed_config.seq_parallel_communication_data_type
"""
PLUGIN_KEYS = Format(
    name="accelerate",
    title="Accelerate",
    signature=(("distributed_type=deepspeed",), ("distributed_type=megatron_lm",)),
    sets={path: path for path in _PLUGIN_READ.split()},
    unpriced={"deepspeed_config.deepspeed_moe_layer_cls_names": "the model given is priced"},
    refused={
        f"parallelism_config.parallelism_config_{axis}_size": "use 1: it is no axis of this plugin"
        for axis in ("tp", "cp", "dp_replicate")
    },
    beside=_PLUGIN_BESIDE,
)
_KINDS = ("fsdp", "multi_gpu", "multi_cpu", "no")
ACCELERATE = Format(
    name="accelerate",
    title="Accelerate",
    signature=tuple((f"distributed_type={kind}",) for kind in _KINDS),
    sets={
        "distributed_type": "fsdp_switch",
        "mixed_precision": "precision",
        "num_processes": "device_count",
        "num_machines": "node_count",
        **under("fsdp_config", {f"fsdp_{name}": word for name, word in SHARDED.items()}),
        **under(
            "parallelism_config",
            {
                "parallelism_config_tp_size": "tensor",
                "parallelism_config_cp_size": "context",
                "parallelism_config_dp_shard_size": "shard",
                "parallelism_config_dp_replicate_size": "replicate",
            },
        ),
        "per_device_train_batch_size": "micro_batch",
        "gradient_accumulation_steps": "accumulation",
        "gradient_checkpointing": "checkpointing",
        "dynamo_config.dynamo_backend": "compile",
    },
    convert={
        "distributed_type": lambda kind: str(kind).lower() == "fsdp",
        "dynamo_config.dynamo_backend": lambda name: str(name).lower() != "no",
    },
    refused={
        "tp_config": "write parallelism_config.parallelism_config_tp_size",
        "parallelism_config.parallelism_config_sp_size": "give "
        "the DeepSpeed configuration with sequence_parallel_size instead",
        "parallelism_config.sp_size": "write parallelism_config_sp_size",
        "parallelism_config.tp_size": "write parallelism_config_tp_size",
        "parallelism_config.cp_size": "write parallelism_config_cp_size",
    },
    unpriced={
        "fp8_config": "how its products are scaled is priced as by tensor",
        "ipex_config": "its kernels are not priced",
    },
    beside="""
        compute_environment debug downcast_bf16 dynamo_config enable_cpu_affinity machine_rank
        main_process_ip main_process_port main_training_function rdzv_backend rdzv_conf same_network
        use_cpu tpu_env tpu_use_cluster tpu_use_sudo gpu_ids monitor_interval max_restarts
        deepspeed_config megatron_lm_config mpirun_config use_mps_device num_cpu_threads_per_process
        fsdp_config.fsdp_auto_wrap_policy fsdp_config.fsdp_backward_prefetch
        fsdp_config.fsdp_backward_prefetch_policy fsdp_config.fsdp_cpu_ram_efficient_loading
        fsdp_config.fsdp_forward_prefetch fsdp_config.fsdp_min_num_params
        fsdp_config.fsdp_state_dict_type fsdp_config.fsdp_sync_module_states
        fsdp_config.fsdp_transformer_layer_cls_to_wrap fsdp_config.fsdp_use_orig_params
        parallelism_config.parallelism_config_cp_backend
        parallelism_config.parallelism_config_sp_backend
        parallelism_config.parallelism_config_cp_comm_strategy
        parallelism_config.parallelism_config_sp_seq_length
        parallelism_config.parallelism_config_sp_seq_length_is_variable
        parallelism_config.parallelism_config_sp_attn_implementation
    """,
    fixed={"precision": "no"},
)
