"""Strategy fields: of each, what a target's files say, what they lose of it, and what is refused.

This is the one table of what targets can do. Exporters refuse by it what no file says, the search
for a framework (`planner.space.frameworks`) keeps to it, and a test walks the strategy's schema, so
that a new field stands here before it can be exported.

Sources, of all that stands here:

- torchtitan 0.3.0 and 0.2.2: `config/configs.py`, `config/job_config.py`, `distributed/fsdp.py`,
  `distributed/parallel_dims.py`, `distributed/context_parallel.py`, and torch's
  `pipelining/stage.py`.
- Megatron-LM 0.19.2: `megatron/training/arguments.py` (`validate_args`),
  `megatron/core/transformer/transformer_config.py`, `megatron/core/pipeline_parallel/schedules.py`.
- Megatron-Bridge 0.3: `docs/recipe-usage.md`; what it runs is Megatron's.
- DeepSpeed 0.19.8: `deepspeed/runtime/config.py`, `runtime/engine.py`, `runtime/zero/config.py`,
  `runtime/zero/offload_config.py`.
- Accelerate 1.15.0: `parallelism_config.py`, `utils/dataclasses.py`.
- transformers 5.23: `training_args.py`, `distributed/configuration_utils.py`.
- Lightning 2.6: `DDPStrategy`, `ModelParallelStrategy`, by our own integration; `FSDPStrategy`.
- Axolotl 0.18, LLaMA-Factory 0.9.6, NeMo 2.5, verl 0.7, NeMo-RL, nanotron and MaxText: the files
  that each exporter names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from planner.exporters.canonical import layer_groups
from planner.schema.strategy import (
    ActivationCheckpointing,
    ContextParallelKind,
    Offload,
    PipelineSchedule,
    Strategy,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a target does with the values of one field.

    Its files say `values`, where None is any. In place of `lost` ones another value is written, and
    the export tells it; all others are refused, since `problem`. A value that is said alone is, of
    the fields that `beside` names, lost or refused beside some of their values.
    """

    values: tuple[object, ...] | None = None
    lost: tuple[object, ...] = ()
    problem: str = ""
    beside: tuple[str, ...] = ()

    def refuses(self, value: object) -> bool:
        """Return whether the target cannot run the value, whatever stands beside it."""
        return self.values is not None and value not in (*self.values, *self.lost)


# What `Strategy.resolved` puts other fields in place of, and a number that says no more than order.
OF_NO_FILE = frozenset({"data_parallel_degree", "schema_version", "stage"})
# Fields that say nothing where another one is 1.
IDLE_WITHOUT = {
    "sequence_parallel": "tensor_parallel_degree",
    "expert_tensor_parallel_degree": "tensor_parallel_degree",
    "pipeline_schedule": "pipeline_parallel_degree",
    "virtual_pipeline_degree": "pipeline_parallel_degree",
    "context_parallel_kind": "context_parallel_degree",
}

_NONE, _SELECTIVE, _FULL = tuple(ActivationCheckpointing)
_RING, _HEADS = tuple(ContextParallelKind)
_GPIPE = PipelineSchedule.GPIPE
_ANY = Said()
_UNPLACED = Said(lost=("device groups, of several",))
_SHARED = ("zero_stage", "offload")  # what decides whether a shard group says anything


def _none(problem: str) -> Said:
    """Return the rule of a degree that the target does not have."""
    return Said(values=(1,), problem=problem)


def _by_layer(*values: object, lost: tuple[object, ...] = (), beside: str = "") -> Said:
    """Return the rule of a choice that the target has for all layers alike."""
    named = tuple(beside.split())
    return Said(values=values, lost=lost, beside=("first_block", *named))


_EVERYWHERE: Mapping[str, Said] = {
    "tensor_parallel_degree": _ANY,
    "sequence_parallel": _ANY,
    "pipeline_parallel_degree": _ANY,
    "virtual_pipeline_degree": _ANY,
    "pipeline_schedule": _ANY,
    "context_parallel_degree": _ANY,
    "context_parallel_kind": _ANY,
    "expert_parallel_degree": _ANY,
    "expert_tensor_parallel_degree": _ANY,
    "data_parallel_replicate_degree": _ANY,
    "data_parallel_shard_degree": _ANY,
    "micro_batch_size": _ANY,
    "micro_batch_count": _ANY,
    "device_group": _UNPLACED,
    "first_block": _ANY,
    "block_count": _ANY,
}
_TORCHTITAN: Mapping[str, Said] = {
    **_EVERYWHERE,
    "context_parallel_kind": Said(values=(_RING,), lost=(_HEADS,), beside=("sequence_length",)),
    "expert_parallel_degree": Said(beside=("expert_tensor_parallel_degree",)),
    "expert_tensor_parallel_degree": Said(beside=("expert_parallel_degree",)),
    "zero_stage": _by_layer(0, 1, 2, 3, beside="pipeline_parallel_degree offload"),
    "activation_checkpointing": _by_layer(_NONE, _SELECTIVE, _FULL),
    "offload": replace(
        _by_layer(Offload.OPTIMIZER, Offload.PARAMETERS, beside="offload"),
        problem="torchtitan offloads no activations",
    ),
}
_MEGATRON: Mapping[str, Said] = {
    **_EVERYWHERE,
    "sequence_parallel": Said(beside=("model",)),
    "pipeline_schedule": Said(
        values=(PipelineSchedule.ONE_F_ONE_B, PipelineSchedule.INTERLEAVED),
        lost=(_GPIPE,),
        problem="Megatron has no schedule whose stages lie in a V",
    ),
    "micro_batch_count": Said(beside=("pipeline_schedule",)),
    "zero_stage": _by_layer(0, 1, 2, 3, beside="pipeline_parallel_degree"),
    "activation_checkpointing": _by_layer(_NONE, _FULL, lost=(_SELECTIVE,)),
    "offload": replace(
        _by_layer(
            Offload.OPTIMIZER,
            Offload.ACTIVATIONS,
            beside="pipeline_parallel_degree activation_checkpointing",
        ),
        problem="Megatron does not keep parameters in host memory",
    ),
}
_OF_THE_PROGRAM = "DeepSpeed's configuration does not say it: the program's own modules do"
_DEEPSPEED: Mapping[str, Said] = {
    **_EVERYWHERE,
    "sequence_parallel": Said(
        values=(False,),
        problem="DeepSpeed's tensor parallelism keeps whole sequences, which takes more memory",
    ),
    "pipeline_parallel_degree": _none(_OF_THE_PROGRAM),
    "context_parallel_degree": Said(beside=("tensor_parallel_degree",)),
    "context_parallel_kind": Said(
        values=(_HEADS,), problem="DeepSpeed exchanges heads and passes no keys round"
    ),
    "expert_parallel_degree": _none(_OF_THE_PROGRAM),
    "expert_tensor_parallel_degree": Said(beside=("model",)),
    "data_parallel_replicate_degree": Said(beside=_SHARED),
    "data_parallel_shard_degree": Said(beside=_SHARED),
    "zero_stage": _by_layer(0, 1, 2, 3, beside="tensor_parallel_degree offload"),
    "activation_checkpointing": _by_layer(_NONE, _FULL, lost=(_SELECTIVE,)),
    "offload": _by_layer(*Offload, beside="activation_checkpointing"),
}
_ACCELERATE: Mapping[str, Said] = {
    **_EVERYWHERE,
    "tensor_parallel_degree": Said(beside=("data_parallel_shard_degree",)),
    "sequence_parallel": Said(
        values=(False,),
        problem="transformers' tensor parallelism keeps whole sequences, which takes more memory",
    ),
    "pipeline_parallel_degree": _none("Accelerate has no such parallelism"),
    "context_parallel_kind": Said(
        values=(_RING,), problem="Accelerate's fully sharded runs pass keys and values round"
    ),
    "expert_parallel_degree": _none("Accelerate has no such parallelism"),
    "expert_tensor_parallel_degree": Said(beside=("model",)),
    "data_parallel_replicate_degree": Said(beside=_SHARED),
    "data_parallel_shard_degree": Said(beside=_SHARED),
    "zero_stage": _by_layer(0, 2, 3, lost=(1,), beside="tensor_parallel_degree offload"),
    "activation_checkpointing": _by_layer(_NONE, _FULL, lost=(_SELECTIVE,)),
    "offload": replace(
        _by_layer(Offload.OPTIMIZER, Offload.PARAMETERS, beside="offload"),
        problem="Accelerate offloads no activations",
    ),
}
_LIGHTNING: Mapping[str, Said] = {
    **_EVERYWHERE,
    "pipeline_parallel_degree": _none("Lightning has no such parallelism"),
    "context_parallel_degree": _none("Lightning has no such parallelism"),
    "expert_parallel_degree": _none("Lightning has no such parallelism"),
    "data_parallel_replicate_degree": Said(beside=("tensor_parallel_degree",)),
    "zero_stage": _by_layer(0, 2, 3, lost=(1,)),
    "activation_checkpointing": _ANY,
    "offload": Said(values=(), problem="Lightning's model parallelism offloads nothing"),
}


def _sharder(name: str, **others: Said) -> Mapping[str, Said]:
    """Return the table of a program that drives `fully_shard` itself, without experts' ranks."""
    return {
        **_ACCELERATE,
        "pipeline_parallel_degree": _none(f"{name} has no such parallelism"),
        "expert_parallel_degree": _none(f"{name} spreads no experts as planned"),
        "offload": replace(_ACCELERATE["offload"], problem=f"{name} offloads no activations"),
        **others,
    }


def _trainers_deepspeed(name: str) -> Mapping[str, Said]:
    """Return DeepSpeed's table within a trainer, which checkpoints by itself."""
    states = (Offload.OPTIMIZER, Offload.PARAMETERS)
    return {
        **_DEEPSPEED,
        "context_parallel_degree": _none(f"{name} splits no sequences under DeepSpeed"),
        "offload": replace(
            _by_layer(*states, beside="activation_checkpointing"),
            problem=f"{name} moves no inputs of checkpointed blocks under DeepSpeed",
        ),
        "zero_stage": _by_layer(0, 1, 2, 3, beside="tensor_parallel_degree offload adapters"),
    }


def _megatron_inside(name: str, **others: Said) -> Mapping[str, Said]:
    """Return Megatron's table without what the program around it leaves out."""
    return {
        **_MEGATRON,
        "data_parallel_replicate_degree": Said(beside=_SHARED),
        "data_parallel_shard_degree": Said(beside=_SHARED),
        "zero_stage": replace(
            _by_layer(0, 1, beside="pipeline_parallel_degree offload"),
            problem=f"{name} has Megatron's distributed optimizer, and no more sharding",
        ),
        **others,
    }


_LIGHTNING_TRAINER: Mapping[str, Said] = {
    **_LIGHTNING,
    "tensor_parallel_degree": _none(
        "FSDPStrategy splits no tensors, which meshwright.integrations.lightning does"
    ),
    "data_parallel_replicate_degree": Said(beside=_SHARED),
    "data_parallel_shard_degree": Said(beside=_SHARED),
    "zero_stage": _by_layer(0, 2, 3, lost=(1,), beside="data_parallel_replicate_degree offload"),
    "activation_checkpointing": _by_layer(_NONE, _FULL, lost=(_SELECTIVE,), beside="zero_stage"),
    "offload": replace(
        _by_layer(Offload.OPTIMIZER, Offload.PARAMETERS, beside="offload"),
        problem="Lightning offloads no activations",
    ),
}
_NANOTRON: Mapping[str, Said] = {
    **_EVERYWHERE,
    "virtual_pipeline_degree": _none("nanotron has no virtual stages"),
    "pipeline_schedule": Said(
        values=(PipelineSchedule.ONE_F_ONE_B, _GPIPE),
        problem="nanotron has no such schedule",
    ),
    "context_parallel_kind": Said(values=(_RING,), problem="nanotron passes keys and values round"),
    "pipeline_parallel_degree": Said(beside=("model",)),
    "expert_parallel_degree": _none("nanotron gives experts ranks of their own"),
    "expert_tensor_parallel_degree": Said(beside=("model",)),
    "data_parallel_replicate_degree": Said(beside=_SHARED),
    "data_parallel_shard_degree": Said(beside=_SHARED),
    "zero_stage": replace(_by_layer(0, 1), problem="nanotron shards the optimizer alone"),
    "activation_checkpointing": replace(_by_layer(_NONE, _FULL), lost=(_SELECTIVE,)),
    "offload": Said(values=(), problem="nanotron offloads nothing"),
    "first_block": Said(beside=("pipeline_parallel_degree",)),
    "block_count": Said(beside=("pipeline_parallel_degree",)),
}
_MAXTEXT: Mapping[str, Said] = {
    **_EVERYWHERE,
    "tensor_parallel_degree": Said(beside=("cluster",)),
    "sequence_parallel": Said(
        values=(False,), problem="MaxText's axis tensor splits no norms of a sequence"
    ),
    "pipeline_parallel_degree": Said(beside=("model",)),
    "pipeline_schedule": Said(
        values=(_GPIPE,), problem="MaxText runs all forward passes before the first backward pass"
    ),
    "virtual_pipeline_degree": _none("MaxText's circular pipelines have an order of their own"),
    "micro_batch_count": Said(beside=("pipeline_parallel_degree",)),
    "first_block": Said(beside=("pipeline_parallel_degree",)),
    "block_count": Said(beside=("pipeline_parallel_degree",)),
    "context_parallel_kind": Said(values=(_RING,), problem="MaxText exchanges heads on TPUs alone"),
    "expert_parallel_degree": Said(beside=("zero_stage", "data_parallel_shard_degree")),
    "expert_tensor_parallel_degree": Said(beside=("model",)),
    "data_parallel_replicate_degree": Said(beside=_SHARED),
    "data_parallel_shard_degree": Said(beside=_SHARED),
    "zero_stage": _by_layer(0, 3, lost=(1, 2)),
    "activation_checkpointing": _by_layer(_NONE, _SELECTIVE, _FULL),
    "offload": replace(
        _by_layer(Offload.OPTIMIZER), problem="MaxText's export offloads its optimizer alone"
    ),
}
STRATEGY_FIELDS: Mapping[str, Mapping[str, Said]] = {
    "torchtitan": _TORCHTITAN,
    "torchtitan-0.2": {
        **_TORCHTITAN,
        "sequence_parallel": Said(values=(True,), lost=(False,)),
    },
    "megatron-lm": _MEGATRON,
    "megatron-bridge": _MEGATRON,
    "deepspeed": _DEEPSPEED,
    "accelerate": _ACCELERATE,
    "hf-trainer": {
        **_ACCELERATE,
        "context_parallel_degree": Said(beside=("tensor_parallel_degree",)),
        "data_parallel_replicate_degree": Said(beside=(*_SHARED, "tensor_parallel_degree")),
        "offload": replace(
            _ACCELERATE["offload"], beside=("first_block", "tensor_parallel_degree")
        ),
    },
    "lightning": _LIGHTNING,
    "axolotl": _sharder("Axolotl"),
    "axolotl-deepspeed": _trainers_deepspeed("Axolotl"),
    "llama-factory": _trainers_deepspeed("LLaMA-Factory"),
    "lightning-trainer": _LIGHTNING_TRAINER,
    "nemo": _megatron_inside("NeMo 2"),
    "verl": _sharder(
        "verl",
        tensor_parallel_degree=_none("verl's FSDP splits no tensors"),
        context_parallel_kind=Said(
            values=(_HEADS,), problem="verl exchanges heads and passes no keys round"
        ),
        zero_stage=_by_layer(2, 3, lost=(0, 1), beside="offload"),
    ),
    "verl-megatron": _megatron_inside("verl"),
    "nemo-rl": _sharder(
        "NeMo-RL",
        tensor_parallel_degree=_ANY,
        sequence_parallel=Said(beside=("context_parallel_degree",)),
        zero_stage=_by_layer(3, lost=(0, 1, 2), beside="offload"),
    ),
    "nemo-rl-megatron": _megatron_inside(
        "NeMo-RL",
        activation_checkpointing=_by_layer(_NONE, _FULL, lost=(_SELECTIVE,)),
    ),
    "nanotron": _NANOTRON,
    "maxtext": _MAXTEXT,
}

_STATES = (Offload.OPTIMIZER, Offload.PARAMETERS)
# What a target moves to the host of all layers and ends together, by the ZeRO stage beside it.
# torch's `CPUOffloadPolicy` moves parameters, gradients and optimizer; Megatron's
# `--use-precision-aware-optimizer` wants its distributed optimizer; DeepSpeed takes
# `offload_optimizer` from stage 1 on and `offload_param` in stage 3.
OFFLOADED_TOGETHER: Mapping[str, Mapping[int, tuple[tuple[Offload, ...], ...]]] = {
    "torchtitan": {3: (_STATES,)},
    "megatron-lm": {1: ((Offload.OPTIMIZER,),)},
    "deepspeed": {
        1: ((Offload.OPTIMIZER,),),
        2: ((Offload.OPTIMIZER,),),
        3: ((Offload.OPTIMIZER,), _STATES),
    },
    "accelerate": {3: (_STATES,)},
    "axolotl": {3: (_STATES,)},
    "llama-factory": {
        1: ((Offload.OPTIMIZER,),),
        2: ((Offload.OPTIMIZER,),),
        3: ((Offload.OPTIMIZER,), _STATES),
    },
}


def refused_fields(strategy: Strategy, target: str) -> Iterator[tuple[str, object, Said]]:
    """Yield each field that the target cannot run as the strategy has it, with the value.

    Targets that are not in the table start the executor, which reads the plan itself.
    """
    for name, said in STRATEGY_FIELDS.get(target, {}).items():
        if is_idle(strategy, name):
            continue
        for value in field_values(strategy, name):
            if said.refuses(value):
                yield name, value, said


def is_idle(strategy: Strategy, name: str) -> bool:
    """Return whether the field says nothing in the strategy, whatever its value."""
    needed = IDLE_WITHOUT.get(name)
    return needed is not None and getattr(strategy, needed) == 1


def field_values(strategy: Strategy, name: str) -> tuple[object, ...]:
    """Return the values that the field has in the resolved strategy, of all layers and ends."""
    if name in {"offload", "zero_stage"}:
        ends = [edge for edge in (strategy.embedding, strategy.head) if edge is not None]
        kept = [getattr(part, name) for part in (*layer_groups(strategy), *ends)]
        if name == "offload":
            return tuple(item for item in Offload if any(item in own for own in kept))
        return tuple(sorted(set(kept)))
    if name in {"activation_checkpointing", "first_block", "block_count"}:
        return tuple(dict.fromkeys(getattr(group, name) for group in layer_groups(strategy)))
    if name == "device_group":
        return tuple(dict.fromkeys(stage.device_group for stage in strategy.stages or ()))
    return (getattr(strategy, name),)


def shown(value: object) -> object:
    """Return the value as a document has it."""
    return value.value if isinstance(value, Enum) else value


def remedy(name: str, said: Said) -> str:
    """Return how to plan so that the field has a value that the target runs."""
    words = [str(shown(value)) for value in said.values or ()]
    if name == "pipeline_schedule" and said is _MEGATRON[name]:
        return "plan with --stack megatron"
    if name == "pipeline_schedule":
        return f"plan with limits.pipeline_schedules [{', '.join(words)}]"
    if name == "sequence_parallel":
        return f"plan with limits.sequence_parallel {words[0].lower()}"
    if name == "context_parallel_kind":
        return f"plan with limits.context_parallel_kinds [{', '.join(words)}]"
    if name == "offload":
        listed = f"[{', '.join(words)}] or []" if words else "[]"
        return f"plan with limits.offload {listed}"
    return f"plan with limits.{name} {words[0]}"
