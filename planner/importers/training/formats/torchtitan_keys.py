"""torchtitan's own keys: those that its reader reads, and those that say nothing of a step.

Names are of torchtitan 0.2.2, `config/job_config.py`, and of 0.3 to 0.5, `config/configs.py`.
"""

from __future__ import annotations

from planner.importers.training.format import Format

_PARALLELISM = """
    data_parallel_replicate_degree data_parallel_shard_degree fsdp_reshard_after_forward
    tensor_parallel_degree context_parallel_degree pipeline_parallel_degree
    pipeline_parallel_schedule pipeline_parallel_schedule_csv pipeline_parallel_microbatch_size
    pipeline_parallel_layers_per_stage pipeline_parallel_first_stage_less_layers
    pipeline_parallel_last_stage_less_layers expert_parallel_degree expert_tensor_parallel_degree
    module_fqns_per_model_part enable_sequence_parallel num_pp_microbatches
    enable_async_tensor_parallel
"""
_TRAINING = """
    local_batch_size global_batch_size seq_len enable_cpu_offload dtype mixed_precision_param
    max_context_length num_tokens_per_microbatch_per_dp_rank num_tokens_per_train_step
"""
_READ = {
    "parallelism": _PARALLELISM,
    "training": _TRAINING,
    "activation_checkpoint": "mode selective_ac_option",
    "compile": "enable components enable_async_tensor_parallel",
    "model": "flavor converters",
}
# torchtitan `components/quantization/float8.py`
FLOAT8_WORDS = {"enable_fsdp_float8_all_gather": "float8_gather", "recipe_name": "float8_recipe"}
_KEPT = "activation_checkpoint"
_FLOAT8 = "products are in 8 bits where model.converters says so, scaled as torchao does by itself"
TORCHTITAN_KEYS = Format(
    name="torchtitan",
    title="torchtitan",
    signature=(("parallelism",),),
    sets={
        f"{section}.{name}": f"{section}.{name}"
        for section, names in _READ.items()
        for name in names.split()
    }
    | {
        f"{section}.{name}": word
        for section in ("float8", "quantize.linear.float8")
        for name, word in FLOAT8_WORDS.items()
    },
    unpriced={
        "parallelism.disable_loss_parallel": "the loss is priced as split over ranks",
        "parallelism.enable_compiled_autograd": "is not priced",
        "parallelism.context_parallel_rotate_method": "keys and values are priced as passed round",
        "parallelism.pipeline_parallel_split_points": "stages are priced as torchtitan makes them",
        "parallelism.pipeline_parallel_expert_parallel_overlap": "is not priced",
        "training.mixed_precision_reduce": "gradients are priced as reduced in 32 bits",
        "activation_checkpoint.memory_budget": "is not priced",
        "optimizer.early_step_in_backward": "the optimizer is priced after backward",
        "float8": _FLOAT8,
        "quantize": _FLOAT8,
        "mx": "products in blocks of 8 bits are priced in 16",
        "experimental.custom_import": "what it changes is not known",
    },
    beside=f"""
        job profiling metrics checkpoint lr_scheduler comm fault_tolerance memory_estimation
        validation debug optimizer fine_tuning
        model.name model.tokenizer_path model.hf_assets_path model.print_after_conversion
        model.norm_type model.tokenizer_type model.tokenizer_backend
        training.dataset training.dataset_path training.max_norm training.steps training.gc_freq
        training.gc_debug training.seed training.deterministic training.warmup_steps
        training.disable_cuda_graphs
        parallelism.context_parallel_load_balancer parallelism.enable_fsdp_symm_mem
        parallelism.full_dtensor parallelism.spmd_backend parallelism.expert_parallel_comm_backend
        compile.backend compile.model compile.loss compile.fullgraph
        {_KEPT}.per_op_sac_force_recompute_mm_shapes_by_fqns {_KEPT}.early_stop
        {_KEPT}.visualize_memory_budget_pareto {_KEPT}.preserve_rng_state
        {_KEPT}.determinism_check {_KEPT}.debug
        experimental.custom_args_module
    """,
)
