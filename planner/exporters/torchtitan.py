"""torchtitan: a plan as a Python function (from 0.3.0) or as TOML (up to 0.2.2).

Field names are those of `torchtitan/config/configs.py` of 0.3.0 and `config/job_config.py` of
0.2.2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from planner.exporters.canonical import layer_groups
from planner.exporters.draft import Draft, offloads, zero_stages
from planner.exporters.export import Export, ExportedFile
from planner.exporters.torchtitan_settled import settled_for_torchtitan
from planner.schema.job import Precision
from planner.schema.plan import Plan
from planner.schema.strategy import ActivationCheckpointing, Offload, PipelineSchedule, Strategy

SCHEDULES = {
    PipelineSchedule.GPIPE: "GPipe",
    PipelineSchedule.ONE_F_ONE_B: "1F1B",
    PipelineSchedule.INTERLEAVED: "Interleaved1F1B",
    PipelineSchedule.ZB_V: "ZBVZeroBubble",
    PipelineSchedule.DUALPIPE_V: "DualPipeV",
}
_REGISTRY = "torchtitan.models.{}.config_registry:{}"
_BASES = {
    "llama-3-8b": _REGISTRY.format("llama3", "llama3_8b"),
    "llama-3-70b": _REGISTRY.format("llama3", "llama3_70b"),
    "llama-3.1-405b": _REGISTRY.format("llama3", "llama3_405b"),
    "deepseek-v3": _REGISTRY.format("deepseek_v3", "deepseek_v3_671b"),
    "gpt-oss-120b": _REGISTRY.format("gpt_oss", "gpt_oss_120b"),
    "qwen3-30b-a3b": _REGISTRY.format("qwen3", "qwen3_30b_a3b"),
}
_CHECKPOINTING = {
    ActivationCheckpointing.NONE: "None",
    ActivationCheckpointing.SELECTIVE: "SelectiveAC.Config()",
    ActivationCheckpointing.FULL: "FullAC.Config()",
}

Value = bool | int | str | list[list[str]]


def export_torchtitan(plan: Plan, target: str) -> Export:
    """Return a module with a function for `--module plan_config --config plan`."""
    draft = settled_for_torchtitan(plan, target, legacy=False)
    text = _python(draft)
    return Export(
        target=target,
        files=(ExportedFile(name="plan_config.py", text=text),),
        losses=draft.losses,
        strategy=draft.strategy,
    )


def export_torchtitan_toml(plan: Plan, target: str) -> Export:
    """Return the sections of a TOML file for `--job.config-file`."""
    draft = settled_for_torchtitan(plan, target, legacy=True)
    return Export(
        target=target,
        files=(ExportedFile(name="plan.toml", text=_toml(draft)),),
        losses=draft.losses,
        strategy=draft.strategy,
    )


def parallelism_fields(draft: Draft, *, legacy: bool) -> dict[str, Value]:
    """Return the degrees, and the stages by the names of their modules."""
    strategy = draft.strategy
    fields: dict[str, Value] = {
        "data_parallel_replicate_degree": strategy.replicate_degree,
        "data_parallel_shard_degree": strategy.shard_degree,
        "fsdp_reshard_after_forward": "always" if zero_stages(strategy) == {3} else "never",
        "tensor_parallel_degree": strategy.tensor_parallel_degree,
        "context_parallel_degree": strategy.context_parallel_degree,
        "expert_parallel_degree": strategy.expert_parallel_degree,
        "pipeline_parallel_degree": strategy.pipeline_parallel_degree,
    }
    if not legacy:
        split = strategy.sequence_parallel or strategy.tensor_parallel_degree == 1
        fields["enable_sequence_parallel"] = split
    elif draft.overlaps_tensor_parallel:
        fields["enable_async_tensor_parallel"] = True
    if legacy and strategy.expert_parallel_degree > 1:
        split_degree = strategy.expert_tensor_parallel_degree or strategy.tensor_parallel_degree
        fields["expert_tensor_parallel_degree"] = split_degree
    if strategy.pipeline_parallel_degree > 1:
        fields["pipeline_parallel_schedule"] = SCHEDULES[strategy.pipeline_schedule]
        fields["pipeline_parallel_microbatch_size"] = strategy.micro_batch_size
        fields["module_fqns_per_model_part"] = _parts(
            strategy, head="output" if legacy else "lm_head"
        )
    return fields


def _parts(strategy: Strategy, *, head: str) -> list[list[str]]:
    """Return the modules of each virtual stage by their names, in the order of the chain."""
    parts: list[list[str]] = []
    block = 0
    for stage in strategy.stages or ():
        names = [f"layers.{block + index}" for index in range(stage.block_count)]
        block += stage.block_count
        parts.append(names)
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", head]
    return parts


def training_fields(draft: Draft) -> dict[str, Value]:
    """Return the batch: with a pipeline, a local batch has all micro-batches of a step."""
    strategy, job = draft.strategy, draft.plan.job.resolved
    pipelined = strategy.pipeline_parallel_degree > 1
    count = (strategy.micro_batch_count or 1) if pipelined else 1
    fields: dict[str, Value] = {
        "local_batch_size": strategy.micro_batch_size * count,
        "global_batch_size": job.global_batch_size or 1,
        "seq_len": job.sequence_length or 1,
        "enable_cpu_offload": Offload.OPTIMIZER in offloads(strategy),
        "mixed_precision_param": "float32" if job.precision is Precision.FP32 else "bfloat16",
    }
    if job.states_in_16_bits:
        fields["dtype"] = "bfloat16"
    return fields


def checkpointing_of(strategy: Strategy) -> ActivationCheckpointing:
    """Return the checkpointing of all layers."""
    return next(layer_groups(strategy)).activation_checkpointing


def training_with_graphs(draft: Draft) -> dict[str, Value]:
    """Return the batch, and whether steps are captured: never a pipeline's or a mixture's."""
    strategy = draft.strategy
    graphs = (
        draft.plan.job.resolved.cuda_graphs
        and strategy.pipeline_parallel_degree == strategy.expert_parallel_degree == 1
    )
    return {**training_fields(draft), "disable_cuda_graphs": not graphs}


def _python(draft: Draft) -> str:
    plan, strategy = draft.plan, draft.strategy
    base = _BASES.get(plan.model.resolved.name, "")
    training = training_with_graphs(draft)
    parallelism = parallelism_fields(draft, legacy=False)
    return _PYTHON.format(
        plan_id=plan.id,
        losses="".join(f"# Not as planned: {loss}.\n" for loss in draft.losses),
        base=json.dumps(base),
        training=_arguments(training),
        parallelism=_arguments(parallelism),
        checkpointing=_CHECKPOINTING[checkpointing_of(strategy)],
        compiled=_COMPILED if draft.overlaps_tensor_parallel else "",
    )


def _arguments(fields: Mapping[str, Value]) -> str:
    return "".join(f"\n        {name}={_literal(value)}," for name, value in fields.items())


def _literal(value: Value) -> str:
    """Return the value in Python; lists have an item a line."""
    if not isinstance(value, list):
        return json.dumps(value) if isinstance(value, str) else repr(value)
    items = "".join(f"\n            {json.dumps(item)}," for item in value)
    return f"[{items}\n        ]"


_PYTHON = '''"""Plan {plan_id} for torchtitan 0.3: --module plan_config --config plan.

The model, the data and the optimizer are those of BASE_CONFIG, "module:function".
"""

{losses}import importlib
import os
from dataclasses import replace

from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
from torchtitan.trainer import Trainer

BASE_CONFIG = os.environ.get("BASE_CONFIG") or {base}


def plan() -> Trainer.Config:
    """Return the base configuration with the plan's parallelism and batch."""
    if not BASE_CONFIG:
        raise SystemExit("set BASE_CONFIG to your configuration, module:function")
    module, _, function = BASE_CONFIG.partition(":")
    config = getattr(importlib.import_module(module), function)()
    config.training = replace(
        config.training,{training}
    )
    config.parallelism = replace(
        config.parallelism,{parallelism}
    )
    config.activation_checkpoint = {checkpointing}{compiled}
    return config
'''
# Asynchronous tensor parallelism is a pass of the compiler.
_COMPILED = """
    config.compile = replace(config.compile, enable=True, enable_async_tensor_parallel=True)"""


def _toml(draft: Draft) -> str:
    mode = checkpointing_of(draft.strategy).value
    sections: dict[str, dict[str, Value]] = {
        "training": training_fields(draft),
        "parallelism": parallelism_fields(draft, legacy=True),
        "activation_checkpoint": {"mode": mode},
    }
    if mode == "selective":
        sections["activation_checkpoint"]["selective_ac_option"] = "op"
    if draft.overlaps_tensor_parallel:
        sections["compile"] = {"enable": True}
    lines = [f"# Plan {draft.plan.id} for torchtitan up to 0.2.2."]
    lines += [f"# Not as planned: {loss}." for loss in draft.losses]
    for name, fields in sections.items():
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in fields.items()]
    return "\n".join(lines) + "\n"
