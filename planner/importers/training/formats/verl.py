"""verl: the actor's training step of `main_ppo`, on FSDP or on Megatron-Core, and its SFT trainer.

What stands under `rollout`, `critic`, `ref` and `reward_model` is of other models or of
sampling, which
are not priced. Names are of verl 0.6, `verl/trainer/config`.
"""

from __future__ import annotations

from planner.importers.training.format import Format, under
from planner.importers.training.formats.megatron_keys import BESIDE as MEGATRON_BESIDE
from planner.importers.training.formats.megatron_keys import (
    GRADIENTS,
    MODEL,
    OFFLOADED_RATIO,
    STATES,
)
from planner.schema.job import Stack

_ACTOR = "actor_rollout_ref.actor"
_MODEL = "actor_rollout_ref.model"
_STEP = {
    **under(
        _ACTOR,
        {
            "ppo_mini_batch_size": "global_batch",
            "ppo_micro_batch_size_per_gpu": "micro_batch",
            "ppo_micro_batch_size": "micro_batch_of_all_ranks",
            "use_dynamic_bsz": "batches_by_tokens",
            "ppo_max_token_len_per_gpu": "micro_batch_tokens",
            "grad_clip": "clipping",
        },
    ),
    "actor_rollout_ref.rollout.n": "samples_per_prompt",
    "data.max_prompt_length": "prompt_length",
    "data.max_response_length": "response_length",
    "trainer.nnodes": "node_count",
    "trainer.n_gpus_per_node": "devices_per_node",
    f"{_MODEL}.enable_gradient_checkpointing": "checkpointing",
    f"{_MODEL}.lora_rank": "lora_rank",
    f"{_MODEL}.target_modules": "lora_targets",
    f"{_MODEL}.use_liger": "liger",
    f"{_MODEL}.use_fused_kernels": "fused_loss",
    f"{_MODEL}.override_config.attn_implementation": "attention",
    f"{_ACTOR}.optim.optimizer": "optimizer",
    f"{_ACTOR}.freeze_vision_tower": "frozen_tower",
}
_LORA = {"rank": "lora_rank", "target_modules": "lora_targets", "dropout": "lora_dropout"}
_BESIDE = f"""
    actor_rollout_ref.rollout.* data.* trainer.* actor_rollout_ref.ref
    actor_rollout_ref.hybrid_engine
    actor_rollout_ref.nccl_timeout critic reward_model reward custom_reward_function algorithm data
    trainer ray_init ray_kwargs global_profiler transfer_queue hydra defaults
    actor_rollout_ref._target_
    {_ACTOR}._target_ {_ACTOR}.strategy {_ACTOR}.optim.* {_ACTOR}.checkpoint {_ACTOR}.profiler
    {_ACTOR}.policy_loss {_ACTOR}.clip_ratio {_ACTOR}.clip_ratio_low {_ACTOR}.clip_ratio_high
    {_ACTOR}.clip_ratio_c {_ACTOR}.loss_agg_mode {_ACTOR}.entropy_coeff {_ACTOR}.use_kl_loss
    {_ACTOR}.kl_loss_coef {_ACTOR}.kl_loss_type {_ACTOR}.ppo_epochs {_ACTOR}.shuffle
    {_ACTOR}.data_loader_seed {_ACTOR}.load_weight {_ACTOR}.use_torch_compile
    {_ACTOR}.entropy_from_logits_with_chunking
    {_ACTOR}.entropy_checkpointing {_ACTOR}.use_fused_kernels {_ACTOR}.use_remove_padding
    {_ACTOR}.loss_scale_factor {_ACTOR}.calculate_entropy {_ACTOR}.rollout_n
    {_MODEL}.path {_MODEL}.custom_chat_template {_MODEL}.external_lib {_MODEL}.override_config
    {_MODEL}.trust_remote_code {_MODEL}.lora.alpha {_MODEL}.use_remove_padding {_MODEL}.use_shm
    {_MODEL}.lora_alpha
    {_MODEL}.exclude_modules {_MODEL}.fused_kernel_options {_MODEL}.tokenizer_path
    {_MODEL}._target_ {_MODEL}.hf_config_path {_MODEL}.load_tokenizer {_MODEL}.lora_adapter_path
    {_ACTOR}.router_replay {_ACTOR}.tau_pos {_ACTOR}.tau_neg {_MODEL}.mtp {_MODEL}.lora
"""
_BETWEEN = "states move to the host between phases; in the step of training they are on devices"
_FURTHER_TOKENS = {f"{_MODEL}.mtp.enable_train": "layers of further tokens are not priced"}
_FSDP = f"{_ACTOR}.fsdp_config"
VERL_FSDP = Format(
    name="verl",
    title="verl on FSDP",
    signature=((_ACTOR, f"!{_ACTOR}.strategy=megatron", f"!{_ACTOR}.megatron"),),
    sets={
        **_STEP,
        **under(
            _FSDP,
            {
                "fsdp_size": "shard_group",
                "reshard_after_forward": "reshard",
                "offload_policy": "offload",
                "model_dtype": "states_precision",
                "dtype": "precision",
                "mixed_precision.param_dtype": "precision",
                "mixed_precision.reduce_dtype": "gradients_precision",
            },
        ),
        f"{_ACTOR}.ulysses_sequence_parallel_size": "heads",
        f"{_FSDP}.ulysses_sequence_parallel_size": "heads",
        f"{_MODEL}.enable_activation_offload": "offload_activations",
    },
    unpriced={
        **_FURTHER_TOKENS,
        f"{_FSDP}.param_offload": _BETWEEN,
        f"{_FSDP}.optimizer_offload": _BETWEEN,
    },
    beside=f"{_BESIDE} {_FSDP}.wrap_policy {_FSDP}._target_ {_FSDP}.forward_prefetch "
    f"{_FSDP}.use_orig_params {_FSDP}.strategy {_FSDP}.forward_only {_FSDP}.use_torch_compile "
    f"{_FSDP}.seed {_FSDP}.full_determinism "
    f"{_FSDP}.entropy_checkpointing {_FSDP}.entropy_from_logits_with_chunking",
    assumed={
        "precision": "bfloat16",
        "lora_targets": "all-linear",
        "micro_batch": 1,
        "samples_per_prompt": 1,
        "checkpointing": True,
    },
    fixed={"zero_stage": 3, "shard_group_of_all_ranks": True},
    notes=("the actor's training step is priced; sampling, the critic and the reference are not",),
)
_MEGATRON = f"{_ACTOR}.megatron"
_TRANSFORMER = f"{_MEGATRON}.override_transformer_config"
VERL_MEGATRON = Format(
    name="verl-megatron",
    title="verl on Megatron-Core",
    signature=(
        (f"{_ACTOR}.megatron", f"!{_ACTOR}.strategy=fsdp", f"!{_ACTOR}.strategy=fsdp2"),
        (f"{_ACTOR}.strategy=megatron",),
    ),
    sets={
        **_STEP,
        **under(_MEGATRON, {**MODEL, **STATES, "dtype": "precision"}),
        f"{_ACTOR}.optim.clip_grad": "clipping",
        **under(f"{_MODEL}.lora", _LORA),
        **under(_TRANSFORMER, MODEL),
        **under(f"{_MEGATRON}.override_ddp_config", {**STATES, **GRADIENTS}),
        **under(f"{_ACTOR}.optim.override_optimizer_config", STATES),
    },
    unpriced={
        **_FURTHER_TOKENS,
        f"{_MEGATRON}.param_offload": _BETWEEN,
        f"{_MEGATRON}.grad_offload": _BETWEEN,
        f"{_MEGATRON}.optimizer_offload": _BETWEEN,
    },
    beside=f"{_BESIDE} {_MEGATRON}._target_ {_MEGATRON}.use_dist_checkpointing "
    f"{_MEGATRON}.dist_checkpointing_path {_MEGATRON}.dist_checkpointing_prefix {_MEGATRON}.seed "
    f"{_MEGATRON}.override_mcore_model_config {_MEGATRON}.use_mbridge {_MEGATRON}.forward_only "
    f"{_MEGATRON}.vanilla_mbridge {_MEGATRON}.use_remove_padding {_MEGATRON}.load_weight "
    + " ".join(f"{_TRANSFORMER}.{name}" for name in MEGATRON_BESIDE.split()),
    stack=Stack.MEGATRON,
    assumed={
        "precision": "bfloat16",
        "--use-distributed-optimizer": True,
        "--sequence-parallel": True,
        "samples_per_prompt": 1,
        "lora_targets": "all-linear",
    },
    fixed=OFFLOADED_RATIO,
    notes=("the actor's training step is priced; sampling, the critic and the reference are not",),
)
_SFT = {
    "data.train_batch_size": "global_batch",
    "data.micro_batch_size_per_gpu": "micro_batch",
    "data.use_dynamic_bsz": "batches_by_tokens",
    "data.max_token_len_per_gpu": "micro_batch_tokens",
    "data.max_length": "sequence_length",
    "model.enable_gradient_checkpointing": "checkpointing",
    "model.lora_rank": "lora_rank",
    "model.target_modules": "lora_targets",
    "model.use_liger": "liger",
    "model.use_fused_kernels": "fused_loss",
    "optim.clip_grad": "clipping",
    "trainer.nnodes": "node_count",
    "trainer.n_gpus_per_node": "devices_per_node",
}
_SFT_BESIDE = "data.* trainer.* optim.* checkpoint model.path model.use_remove_padding profiler"
VERL_SFT_MEGATRON = Format(
    name="verl-sft-megatron",
    title="verl's SFT trainer with Megatron-Core",
    signature=tuple(
        (f"engine.{axis}", "data.train_batch_size", "!engine.ulysses_sequence_parallel_size")
        for axis in ("tensor_model_parallel_size", "pipeline_model_parallel_size")
    ),
    sets={
        **_SFT,
        **under("engine", {**MODEL, **STATES, "dtype": "precision"}),
        **under("engine.override_transformer_config", MODEL),
        **under("engine.override_ddp_config", {**STATES, **GRADIENTS}),
        **under("optim.override_optimizer_config", STATES),
    },
    beside=f"{_SFT_BESIDE} engine.use_mbridge engine.vanilla_mbridge engine.strategy",
    stack=Stack.MEGATRON,
    assumed={"precision": "bfloat16", "--use-distributed-optimizer": True},
    fixed=OFFLOADED_RATIO,
)
VERL_SFT = Format(
    name="verl-sft",
    title="verl's SFT trainer",
    signature=(
        ("model.partial_pretrain",),
        ("data.micro_batch_size_per_gpu", "model.fsdp_config"),
        ("engine.ulysses_sequence_parallel_size", "!engine.tensor_model_parallel_size"),
    ),
    sets={
        **_SFT,
        "data.micro_batch_size": "micro_batch_of_all_ranks",
        "engine.ulysses_sequence_parallel_size": "heads",
        "engine.fsdp_size": "shard_group",
        "engine.model_dtype": "states_precision",
        "engine.dtype": "precision",
        "engine.reshard_after_forward": "reshard",
        "engine.offload_policy": "offload",
        "model.fsdp_config.model_dtype": "states_precision",
        "model.fsdp_config.cpu_offload": "offload",
        "model.fsdp_config.offload_params": "offload",
        "ulysses_sequence_parallel_size": "heads",
    },
    beside=f"{_SFT_BESIDE} model.partial_pretrain model.fsdp_config.wrap_policy engine.strategy "
    "model.external_lib "
    "model.trust_remote_code model.lora_alpha use_remove_padding "
    "model.custom_cls model.strategy hydra defaults",
    assumed={"precision": "bfloat16", "lora_targets": "all-linear"},
    fixed={"zero_stage": 3},
)
