"""RL policies: a plan as the training step of verl's actor on FSDP and of NeMo-RL's on DTensor.

Both always shard the policy by torch's `fully_shard`. Keys are those of verl 0.7
(`trainer/config/actor/dp_actor.yaml`, `engine/fsdp.yaml`, `model/hf_model.yaml`), whose
`create_device_mesh` counts ranks that share a sequence in `fsdp_size`, and of NeMo-RL of August
2026 (`examples/configs/grpo_math_1B.yaml`, `models/automodel/setup.py`), which reduces gradients
once a step unless it is told to do so earlier. Sampling and other models are not of a plan.
"""

from __future__ import annotations

from planner.exporters.adapter_fields import ATTENTION_MODULES, DROPOUT_RATIO
from planner.exporters.draft import Draft, offloads, refusal, zero_stages
from planner.exporters.export import Export, ExportedFile
from planner.exporters.fully_sharded import Sharder, settled_fully_sharded
from planner.exporters.megatron_bridge import shown
from planner.exporters.megatron_sections import PROMPTS, policy_fields
from planner.exporters.placement import placement
from planner.exporters.precision import without_float8
from planner.exporters.yaml_lines import Fields, yaml_text
from planner.schema.job import Adapters, AdapterTargets, Precision
from planner.schema.model_kind import scores_sequences
from planner.schema.plan import Plan
from planner.schema.strategy import Offload

_VERL = Sharder(name="verl", always=True)
_NEMO_RL = Sharder(name="NeMo-RL", zero_stages=(3,), always=True)
_ACTOR = "actor_rollout_ref.actor"
_MODEL = "actor_rollout_ref.model"


def export_verl(plan: Plan, target: str) -> Export:
    """Return overrides for `verl.trainer.main_ppo`, one a line."""
    draft = without_float8(settled_fully_sharded(plan, target, _VERL), "verl's configuration")
    if plan.job.resolved.precision is Precision.FP32:
        raise refusal(
            draft,
            field="precision",
            value=Precision.FP32.value,
            problem="verl computes in 16 bits",
            remedy="plan in bf16",
        )
    draft = draft.losing(PROMPTS)
    lines = [f"{name}={shown(value)}" for name, value in _verl_fields(draft).items()]
    return draft.exported(ExportedFile(name="verl.overrides", text="\n".join(lines) + "\n"))


def export_nemo_rl(plan: Plan, target: str) -> Export:
    """Return the section `policy`, to be merged into a run's configuration."""
    draft = without_float8(settled_fully_sharded(plan, target, _NEMO_RL), "the section")
    _refuse_split_twice(draft)
    comments = draft.comments(
        f"Plan {plan.id} for NeMo-RL: merge this into the run's configuration."
    )
    return draft.exported(
        ExportedFile(name="nemo_rl.yaml", text=yaml_text(_nemo_rl_fields(draft), comments))
    )


def _refuse_split_twice(draft: Draft) -> None:
    """Keep: no sequence parallelism beside context parallelism (`setup_model_and_optimizer`)."""
    if draft.strategy.context_parallel_degree == 1 or not draft.strategy.sequence_parallel:
        return
    raise refusal(
        draft,
        field="sequence_parallel",
        value=True,
        problem="NeMo-RL on DTensor refuses it beside context parallelism",
        remedy="plan with limits.sequence_parallel false",
    )


def _verl_fields(draft: Draft) -> Fields:
    strategy, job, place = draft.strategy, draft.plan.job.resolved, placement(draft.plan)
    context = strategy.context_parallel_degree
    fields: Fields = {
        f"{_ACTOR}.strategy": "fsdp2",
        f"{_ACTOR}.ppo_mini_batch_size": job.global_batch_size,
        f"{_ACTOR}.ppo_micro_batch_size_per_gpu": strategy.micro_batch_size,
        f"{_ACTOR}.use_dynamic_bsz": False,
        f"{_ACTOR}.ulysses_sequence_parallel_size": context,
        f"{_ACTOR}.fsdp_config.fsdp_size": strategy.shard_degree * context,
        f"{_ACTOR}.fsdp_config.reshard_after_forward": max(zero_stages(strategy)) != 2,
        f"{_ACTOR}.fsdp_config.offload_policy": Offload.PARAMETERS in offloads(strategy),
        f"{_ACTOR}.fsdp_config.dtype": "float16" if job.precision is Precision.FP16 else "bfloat16",
        f"{_ACTOR}.fsdp_config.model_dtype": "bf16" if job.states_in_16_bits else "fp32",
        f"{_MODEL}.enable_gradient_checkpointing": draft.recomputes_blocks,
    }
    if job.adapters is not None:
        everything = job.adapters.targets is AdapterTargets.ALL
        fields[f"{_MODEL}.lora_rank"] = job.adapters.rank
        fields[f"{_MODEL}.target_modules"] = "all-linear" if everything else list(ATTENTION_MODULES)
    return fields | {
        "trainer.nnodes": place.node_count,
        "trainer.n_gpus_per_node": place.devices_per_node,
    }


def _nemo_rl_fields(draft: Draft) -> Fields:
    strategy, adapters = draft.strategy, draft.plan.job.resolved.adapters
    section: Fields = {
        "_v2": True,
        "enabled": True,
        "tensor_parallel_size": strategy.tensor_parallel_degree,
        "context_parallel_size": strategy.context_parallel_degree,
        "dp_replicate_size": strategy.replicate_degree,
        "sequence_parallel": strategy.sequence_parallel,
        "activation_checkpointing": draft.recomputes_blocks,
        "cpu_offload": Offload.PARAMETERS in offloads(strategy),
        "defer_fsdp_grad_sync": False,
    }
    if adapters is not None:
        section["lora_cfg"] = _lora(adapters) | {
            "use_triton": strategy.tensor_parallel_degree == 1  # its kernels split nothing
        }
    backends: Fields = {"dtensor_cfg": section, "megatron_cfg": {"enabled": False}}
    if scores_sequences(draft.plan.model.resolved):
        scored: Fields = {"enabled": True, "reward_model_type": "bradley_terry"}
        backends = {"reward_model_cfg": scored, **backends}
    return policy_fields(draft, backends)


def _lora(adapters: Adapters) -> Fields:
    everything = adapters.targets is AdapterTargets.ALL
    return {
        "enabled": True,
        "dim": adapters.rank,
        "alpha": 2 * adapters.rank,
        "dropout": DROPOUT_RATIO if adapters.dropout else 0.0,
        "match_all_linear": everything,
        "target_modules": [] if everything else [f"*{name}" for name in ATTENTION_MODULES],
    }
