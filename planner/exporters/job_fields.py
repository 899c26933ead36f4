"""Job fields: which of a job a target's files say, and what is told of all others.

What neither a file says nor the planner alone asks is a loss wherever it is not the default: the
plan's memory and time count on it, and the program has to have it so.
"""

from __future__ import annotations

from collections.abc import Iterator

from planner.errors import InputError
from planner.executor_fields import executor_losses
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
WRITTEN: dict[str, frozenset[str]] = {
    "torchtitan": _USUAL | {"states_in_16_bits"},
    "torchtitan-0.2": _USUAL | {"states_in_16_bits"},
    "megatron-lm": _USUAL,
    "megatron-bridge": _USUAL,
    "deepspeed": _USUAL | {"gradient_clipping", "offload_to"},
    "accelerate": _USUAL,
    "hf-trainer": _USUAL | {"gradient_clipping", "optimizer"},
    "lightning": _USUAL,
}
# Programs that train all parameters of a model, whatever their files say.
WITHOUT_ADAPTERS = frozenset({"torchtitan", "torchtitan-0.2", "megatron-lm"})
# Programs that clip gradients only where they say so themselves.
_CLIP_NOTHING = frozenset({"accelerate", "lightning"})
TRAINER_OPTIMIZERS = {
    Optimizer.ADAM8BIT: "adamw_bnb_8bit",
    Optimizer.ADAFACTOR: "adafactor",
    Optimizer.SGD: "sgd",
}


def job_losses(job: Job, target: str) -> tuple[str, ...]:
    """Return what the program has to bring, a sentence for each field that no file says.

    Raises:
        InputError: if the target trains something else.
    """
    if target in _WITH_THE_PLAN:
        return executor_losses(job)
    refuse_adapters(job, target)
    return tuple(_losses(job, target))


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
            remedy="export to accelerate, hf-trainer or torchrun, or plan without adapters",
        )


def _losses(job: Job, target: str) -> Iterator[str]:
    silent = OF_NO_FILE | WRITTEN[target]
    if target in _CLIP_NOTHING and job.gradient_clipping is False:
        silent = silent | {"gradient_clipping"}
    if target == "hf-trainer" and job.optimizer not in {Optimizer.ADAMW, *TRAINER_OPTIMIZERS}:
        silent = silent - {"optimizer"}
    for name, field in Job.model_fields.items():
        value = getattr(job, name)
        if name not in silent and name in job.model_fields_set and value != field.default:
            yield _loss(name, value)


def _loss(name: str, value: object) -> str:
    if isinstance(value, Adapters):
        base = f", on a base of {value.base_bits} bits" if value.base_bits < 16 else ""
        return (
            f"no file makes adapters: the program has to wrap the model, as "
            f"peft.get_peft_model does with LoraConfig(r={value.rank}){base}; without, it trains "
            "all parameters, which takes more memory"
        )
    said = str(value).lower() if isinstance(value, bool) else str(value)
    return f"no file says {name} {said}, which the plan counts on: the program has to have it so"
