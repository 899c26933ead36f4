"""Job fields: which of a job a target's files say, and what is told of all others.

What neither a file says nor the planner alone asks is a loss wherever it is not the default: the
plan's memory and time count on it, and the program has to have it so.
"""

from __future__ import annotations

from collections.abc import Iterator

from planner.errors import InputError
from planner.executor_fields import executor_losses
from planner.exporters.adapter_fields import ADAPTER_FIELDS, adapter_losses
from planner.schema.job import Adapters, Job, Optimizer

# These start the executor, which reads the plan itself.
_WITH_THE_PLAN = frozenset({"torchrun", "slurm", "kubeflow", "skypilot"})
# Questions to the planner, what it was told of the program's stack, and the lengths of its data.
OF_NO_FILE = frozenset(
    {
        "calibration",
        "expert_load_ratio",
        "framework",
        "limits",
        "objective",
        "schema_version",
        "sequence_length",
        "stack",
        "varied_lengths",
    }
)
_USUAL = frozenset({"global_batch_size", "precision"})
_CLIPPED = _USUAL | {"gradient_clipping"}
_TRAINED = _CLIPPED | {"adapters", "optimizer", "tensor_float_32"}
WRITTEN: dict[str, frozenset[str]] = {
    "torchtitan": _USUAL | {"overlapped_tensor_parallel", "states_in_16_bits"},
    "torchtitan-0.2": _USUAL | {"overlapped_tensor_parallel", "states_in_16_bits"},
    "megatron-lm": _USUAL
    | {"copies_in_8_bits", "dropout", "gradients_in_16_bits", "overlapped_tensor_parallel"},
    "megatron-bridge": _USUAL | {"dropout"},
    "deepspeed": _CLIPPED | {"offload_to", "overlapped_gradients"},
    "accelerate": _USUAL,
    "hf-trainer": _CLIPPED | {"optimizer", "tensor_float_32"},
    "lightning": _USUAL,
    "axolotl": _TRAINED | {"gathered_in_8_bits", "states_in_16_bits"},
    "axolotl-deepspeed": _TRAINED | {"offload_to", "overlapped_gradients"},
    "llama-factory": _TRAINED | {"offload_to", "overlapped_gradients"},
    "lightning-trainer": _USUAL,
    "nemo": _USUAL | {"adapters", "dropout", "gradients_in_16_bits"},
    "verl": _USUAL | {"adapters", "states_in_16_bits"},
    "verl-megatron": _CLIPPED | {"dropout", "gradients_in_16_bits"},
    "nemo-rl": _CLIPPED | {"adapters"},
    "nemo-rl-megatron": _CLIPPED | {"adapters", "dropout", "gradients_in_16_bits"},
    "nanotron": _CLIPPED | {"overlapped_tensor_parallel", "regathered_rows", "states_in_16_bits"},
    "maxtext": _CLIPPED | {"states_in_16_bits"},
}
# Programs that train all parameters of a model, whatever their files say.
WITHOUT_ADAPTERS = frozenset({"torchtitan", "torchtitan-0.2", "megatron-lm", "nanotron", "maxtext"})
# Programs that clip gradients only where they say so themselves.
_CLIP_NOTHING = frozenset({"accelerate", "lightning", "lightning-trainer"})
# Programs that clip gradients to a norm of 1, and cannot be told otherwise or are so elsewhere.
_CLIP_ALWAYS = frozenset({"verl"})
# Names of optimizers that a target's files may give; what is not among them is told.
_TRAINERS = {
    Optimizer.ADAM8BIT: "adamw_bnb_8bit",
    Optimizer.ADAFACTOR: "adafactor",
    Optimizer.SGD: "sgd",
}
_FINE_TUNED = {**_TRAINERS, Optimizer.ADAMW: "adamw_torch_fused"}
OPTIMIZERS: dict[str, dict[Optimizer, str]] = {
    "hf-trainer": _TRAINERS,
    # `fully_shard` and bitsandbytes' kernels do not go together (`check_fsdp2_w_8bit_optimizer`)
    "axolotl": {**_FINE_TUNED, Optimizer.ADAM8BIT: "ao_adamw_8bit", Optimizer.MUON: "muon"},
    "axolotl-deepspeed": _FINE_TUNED,
    "llama-factory": {**_FINE_TUNED, Optimizer.ADAMW: "adamw_torch"},
    "megatron-lm": {Optimizer.SGD: "sgd", Optimizer.MUON: "muon"},
    "nanotron": {Optimizer.ADAMW: "adamW", Optimizer.SGD: "sgd"},
    "maxtext": {Optimizer.ADAMW: "adamw", Optimizer.SGD: "sgd", Optimizer.MUON: "muon"},
}


def job_losses(job: Job, target: str) -> tuple[str, ...]:
    """Return what the program has to bring, a sentence for each field that no file says.

    Raises:
        InputError: if the target trains something else.
    """
    if target in _WITH_THE_PLAN:
        return executor_losses(job)
    refuse_adapters(job, target)
    made = job.adapters if target in ADAPTER_FIELDS else None
    return (*_losses(job, target), *(adapter_losses(made, target) if made else ()))


def refuse_adapters(job: Job, target: str) -> None:
    """Raise if the job trains adapters and the target's program all parameters.

    Raises:
        InputError: naming what is to be trained.
    """
    if job.adapters is not None and target in WITHOUT_ADAPTERS:
        raise InputError(
            f"are not trained by {target}, which trains all parameters",
            field="job.adapters",
            value=f"rank {job.adapters.rank}",
            remedy="export to axolotl, llama-factory or torchrun, or plan without adapters",
        )


def _losses(job: Job, target: str) -> Iterator[str]:
    silent = OF_NO_FILE | WRITTEN[target]
    if target in _CLIP_NOTHING and job.gradient_clipping is False:
        silent = silent | {"gradient_clipping"}
    if target in _CLIP_ALWAYS and job.gradient_clipping:
        silent = silent | {"gradient_clipping"}
    names = OPTIMIZERS.get(target, {})
    if job.optimizer in {Optimizer.ADAMW, *names}:
        silent = silent | {"optimizer"}
    elif names:
        silent = silent - {"optimizer"}
    for name, field in Job.model_fields.items():
        value = getattr(job, name)
        if name not in silent and name in job.model_fields_set and value != field.default:
            yield _loss(name, value)


def _loss(name: str, value: object) -> str:
    if isinstance(value, Adapters):
        return unwritten_adapters(value)
    said = str(value).lower() if isinstance(value, bool) else str(value)
    return f"no file says {name} {said}, which the plan counts on: the program has to have it so"


def unwritten_adapters(adapters: Adapters) -> str:
    """Return the sentence of adapters that the program itself makes."""
    base = f", on a base of {adapters.base_bits} bits" if adapters.base_bits < 16 else ""
    return (
        f"no file makes adapters: the program has to wrap the model, as peft.get_peft_model does "
        f"with LoraConfig(r={adapters.rank}){base}; without, it trains all parameters, which takes "
        "more memory"
    )
