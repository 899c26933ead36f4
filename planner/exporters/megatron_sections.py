"""Megatron sections: a plan as Megatron-Core's settings in the files of programs around it.

NeMo 2 has them as assignments to a recipe, verl as overrides of its actor, NeMo-RL as a section of
its policy. What can be run is Megatron's own to say, without what these leave out of it. Names are
those of NeMo 2.5 (`nemo/lightning/pytorch/strategies/megatron_strategy.py`,
`scripts/performance/helpers.py`), of verl 0.7 (`trainer/config/engine/megatron.yaml`,
`workers/config/engine.py`) and of NeMo-RL of August 2026 (`examples/configs/grpo_math_1B.yaml`,
`models/policy/__init__.py`, `models/megatron/setup.py`).
"""

from __future__ import annotations

from planner.exporters.adapter_fields import DROPOUT_RATIO, MEGATRON_ATTENTION_MODULES
from planner.exporters.canonical import layer_groups
from planner.exporters.draft import Draft, refusal, with_one_checkpointing, with_one_zero_stage
from planner.exporters.export import Export, ExportedFile
from planner.exporters.megatron_bridge import megatron_fields, shown
from planner.exporters.megatron_settled import settled_for_megatron
from planner.exporters.placement import placement
from planner.exporters.precision import with_the_recipes_precision, without_float8
from planner.exporters.yaml_lines import Fields, yaml_text
from planner.schema.job import Adapters, AdapterTargets, Job, Precision
from planner.schema.plan import Plan
from planner.schema.strategy import ActivationCheckpointing

_PARALLEL = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
    "sequence_parallel",
)
# What NeMo-RL takes among its own keys and refuses among `model_overrides`.
_OF_THE_POLICY = (
    "recompute_granularity",
    "recompute_modules",
    "moe_token_dispatcher_type",
    "moe_flex_dispatcher_backend",
)
_VIRTUAL = "virtual_pipeline_model_parallel_size"
_LAYOUT = "pipeline_model_parallel_layout"
_ALL_MODULES = (*MEGATRON_ATTENTION_MODULES, "linear_fc1", "linear_fc2")
_NUMBERS = {
    Precision.BF16: "bfloat16",
    Precision.FP8: "bfloat16",
    Precision.FP16: "float16",
    Precision.FP32: "float32",
}
_ACTOR = "actor_rollout_ref.actor"
PROMPTS = (
    "ppo_mini_batch_size counts prompts: divide it by actor_rollout_ref.rollout.n where that is "
    "more than 1"
)


def export_nemo(plan: Plan, target: str) -> Export:
    """Return a module whose function sets the plan in a recipe of NeMo 2."""
    draft = with_the_recipes_precision(_settled(plan, target))
    return draft.exported(ExportedFile(name="planned_nemo.py", text=_module(draft)))


def export_verl_megatron(plan: Plan, target: str) -> Export:
    """Return overrides for `main_ppo --config-name ppo_megatron_trainer.yaml`, one a line."""
    draft = without_float8(_settled(plan, target), "verl's configuration")
    if plan.job.resolved.precision is Precision.FP32:
        raise refusal(
            draft,
            field="precision",
            value=Precision.FP32.value,
            problem="verl runs Megatron in 16 bits",
            remedy="plan in bf16",
        )
    draft = draft.losing(PROMPTS)
    lines = [f"{name}={shown(value)}" for name, value in _verl_fields(draft).items()]
    return draft.exported(ExportedFile(name="verl.overrides", text="\n".join(lines) + "\n"))


def export_nemo_rl_megatron(plan: Plan, target: str) -> Export:
    """Return the section `policy`, to be merged into a run's configuration."""
    draft = without_float8(_settled(plan, target), "the section")
    draft = with_one_checkpointing(draft, why="NeMo-RL recomputes all layers or none")
    comments = draft.comments(
        f"Plan {plan.id} for NeMo-RL: merge this into the run's configuration."
    )
    return draft.exported(
        ExportedFile(name="nemo_rl.yaml", text=yaml_text(_nemo_rl_fields(draft), comments))
    )


def _settled(plan: Plan, target: str) -> Draft:
    """Keep: the distributed optimizer over all data-parallel ranks, and no Megatron-FSDP."""
    draft = settled_for_megatron(plan, target)
    if draft.shares_states:
        draft = with_one_zero_stage(draft, (0, 1), why="it has Megatron's distributed optimizer")
    strategy = draft.strategy
    if strategy.replicate_degree == 1 or next(layer_groups(strategy)).zero_stage == 0:
        return draft
    data = strategy.shard_degree * strategy.replicate_degree
    return draft.losing(
        f"the optimizer is sharded over all {data} data-parallel ranks, where the plan does over "
        f"{strategy.shard_degree}: less memory, collectives of more ranks",
        strategy.model_copy(
            update={"data_parallel_shard_degree": data, "data_parallel_replicate_degree": 1}
        ),
    )


def _sections(draft: Draft) -> dict[str, Fields]:
    """Return Megatron's settings by section."""
    found: dict[str, Fields] = {"model": {}, "train": {}, "ddp": {}, "optimizer": {}}
    for path, value in megatron_fields(draft).items():
        section, _, name = path.partition(".")
        found[section][name] = value
    return found


def _module(draft: Draft) -> str:
    adapters = draft.plan.job.resolved.adapters
    lora = ["import nemo_run as run", "from nemo.collections.llm.peft.lora import LoRA", ""]
    lines = [
        '"""A plan for a recipe.',
        "",
        *draft.comments(f"Plan {draft.plan.id} for NeMo 2.5."),
        '"""',
        "",
        *(lora if adapters else []),
        "",
        "def planned(recipe):",
        '    """Return the recipe with the plan\'s settings."""',
        *(f"    recipe.{name} = {value!r}" for name, value in _nemo_fields(draft).items()),
        *([f"    recipe.peft = run.Config(LoRA, {_lora(adapters)})"] if adapters else []),
        "    return recipe",
    ]
    return "\n".join(lines) + "\n"


def _nemo_fields(draft: Draft) -> Fields:
    """Return assignments: what strategy and model have of Megatron, batch, optimizer, devices."""
    sections, place = _sections(draft), placement(draft.plan)
    fields: Fields = {
        "trainer.devices": place.devices_per_node,
        "trainer.num_nodes": place.node_count,
    }
    for name, value in sections["model"].items():
        own = name in {*_PARALLEL, _VIRTUAL, _LAYOUT}
        fields[f"{'trainer.strategy' if own else 'model.config'}.{name}"] = value
    fields["data.seq_length"] = sections["model"]["seq_length"]
    fields |= {f"data.{name}": value for name, value in sections["train"].items()}
    fields |= {f"trainer.strategy.ddp.{name}": value for name, value in sections["ddp"].items()}
    if draft.plan.job.resolved.gradients_in_16_bits:
        fields["trainer.strategy.ddp.grad_reduce_in_fp32"] = False
        fields["trainer.plugins.grad_reduce_in_fp32"] = False
    sharded = sections["ddp"]["use_distributed_optimizer"]
    fields["optim.config.use_distributed_optimizer"] = sharded
    return fields | {f"optim.config.{name}": v for name, v in sections["optimizer"].items()}


def _lora(adapters: Adapters) -> str:
    words = [f"dim={adapters.rank}", f"target_modules={list(_modules(adapters))!r}"]
    return ", ".join([*words, *([f"dropout={DROPOUT_RATIO}"] if adapters.dropout else [])])


def _modules(adapters: Adapters) -> tuple[str, ...]:
    everything = adapters.targets is AdapterTargets.ALL
    return _ALL_MODULES if everything else MEGATRON_ATTENTION_MODULES


def _verl_fields(draft: Draft) -> Fields:
    """Return overrides of the actor; `++` adds a key where the default has none."""
    sections, place = _sections(draft), placement(draft.plan)
    model, ddp = sections["model"], sections["ddp"]
    fields: Fields = {f"{_ACTOR}.strategy": "megatron"}
    for name, value in model.items():
        if name in {*_PARALLEL, _VIRTUAL}:
            fields[f"{_ACTOR}.megatron.{name}"] = value
        elif name != "seq_length":
            fields[f"++{_ACTOR}.megatron.override_transformer_config.{name}"] = value
    for name, value in ddp.items():
        if name == "use_distributed_optimizer":
            fields[f"{_ACTOR}.megatron.{name}"] = value
        else:
            fields[f"++{_ACTOR}.megatron.override_ddp_config.{name}"] = value
    for name, value in sections["optimizer"].items():
        fields[f"++{_ACTOR}.optim.override_optimizer_config.{name}"] = value
    job = draft.plan.job.resolved
    fields[
        f"++{_ACTOR}.megatron.override_ddp_config.grad_reduce_in_fp32"
    ] = not job.gradients_in_16_bits
    fields |= {f"{_ACTOR}.optim.{name}": norm for name, norm in _clipped(job).items()}
    return fields | {
        f"{_ACTOR}.megatron.dtype": _NUMBERS[job.precision],
        f"{_ACTOR}.use_dynamic_bsz": False,
        f"{_ACTOR}.ppo_micro_batch_size_per_gpu": sections["train"]["micro_batch_size"],
        f"{_ACTOR}.ppo_mini_batch_size": sections["train"]["global_batch_size"],
        "trainer.nnodes": place.node_count,
        "trainer.n_gpus_per_node": place.devices_per_node,
    }


def policy_fields(draft: Draft, backends: Fields, *, packed: bool = False) -> Fields:
    """Return what NeMo-RL's policy says of a step, with its backends, and the cluster.

    A micro-batch is so many sequences, and each is padded to a multiple that ranks can divide.
    """
    strategy, job, place = draft.strategy, draft.plan.job.resolved, placement(draft.plan)
    context = strategy.context_parallel_degree
    policy: Fields = {
        "train_global_batch_size": job.global_batch_size,
        "train_micro_batch_size": strategy.micro_batch_size,
        "max_total_sequence_length": job.sequence_length,
        "precision": _NUMBERS[job.precision],
        "dynamic_batching": {"enabled": False},
        "sequence_packing": {"enabled": packed},
        "make_sequence_length_divisible_by": strategy.tensor_parallel_degree
        * (2 * context if context > 1 else 1),
    }
    if job.gradient_clipping is not None:
        policy["max_grad_norm"] = 1.0 if job.gradient_clipping else None
    return {
        "policy": policy | backends,
        "cluster": {"gpus_per_node": place.devices_per_node, "num_nodes": place.node_count},
    }


def _nemo_rl_fields(draft: Draft) -> Fields:
    sections, job = _sections(draft), draft.plan.job.resolved
    model = {k: v for k, v in sections["model"].items() if k != "seq_length" and v is not None}
    kept = next(layer_groups(draft.strategy)).activation_checkpointing
    megatron: Fields = {
        "enabled": True,
        **{name: model.pop(name) for name in _PARALLEL},
        "pipeline_dtype": _NUMBERS[job.precision],
        "activation_checkpointing": kept is not ActivationCheckpointing.NONE,
    }
    for name in _OF_THE_POLICY:
        if name in model:
            megatron[name] = model.pop(name)
    own = {name: v for name, v in model.items() if not name.startswith("recompute_")}
    if own:
        megatron["model_overrides"] = own
    ddp = sections["ddp"] | {"grad_reduce_in_fp32": not job.gradients_in_16_bits}
    sharded = {"use_distributed_optimizer": ddp.pop("use_distributed_optimizer")}
    megatron["optimizer"] = sharded | sections["optimizer"] | _clipped(job)
    megatron["distributed_data_parallel_config"] = ddp
    if job.adapters is not None:
        megatron["peft"] = _peft(job.adapters)
    backends: Fields = {"dtensor_cfg": {"enabled": False}, "megatron_cfg": megatron}
    # its ranks share packed sequences alone (`_apply_parallelism_config`)
    return policy_fields(draft, backends, packed=draft.strategy.context_parallel_degree > 1)


def _clipped(job: Job) -> Fields:
    """Return Megatron's own word of clipping, which takes no norm of 0."""
    if job.gradient_clipping is None:
        return {}
    return {"clip_grad": 1.0 if job.gradient_clipping else 0.0}


def _peft(adapters: Adapters) -> Fields:
    return {
        "enabled": True,
        "dim": adapters.rank,
        "alpha": 2 * adapters.rank,
        "dropout": DROPOUT_RATIO if adapters.dropout else 0.0,
        "target_modules": list(_modules(adapters)),
    }
