"""Executor fields: what of a job the executor does, and what is told of all else.

A plan is priced as the job says that the program runs. What the executor runs otherwise is told by
the exports that start it and by the reports of its ranks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from planner.schema.job import Job, Stack

# Devices whose programs run on other software than ours, which their profiles name.
PLANNED_ONLY = frozenset(
    {
        "ascend-910b-64gb",
        "gaudi2-96gb",
        "gaudi3-128gb",
        "tpu-v4-32gb",
        "tpu-v5e-16gb",
        "tpu-v5p-95gb",
        "tpu-v6e-32gb",
        "trainium2-96gb",
    }
)
# What the executor applies, tells by itself at run time, or refuses before ranks start.
DONE_OR_REFUSED = frozenset(
    {
        "adapters",
        "foreach_optimizer",
        "fused_elementwise",
        "fused_linear_loss",
        "global_batch_size",
        "gradient_clipping",
        "gradients_in_16_bits",
        "offload_to",
        "offloaded_gradients",
        "paged_states",
        "precision",
        "row_scaled_fp8",
        "sequence_length",
        "states_in_16_bits",
        "steps_in_backward",
        "tensor_float_32",
    }
)
# Questions to the planner, and what is no matter of the program.
OF_NO_PROGRAM = frozenset(
    {
        "calibration",
        "expert_load_ratio",
        "framework",
        "limits",
        "objective",
        "schema_version",
        "varied_lengths",
    }
)
# What its DTensors do, whether a job says so or leaves it open
_AS_IT_IS = {"copied_rows": True, "overlapped_tensor_parallel": False}
# What the script's own model, loss and optimizer do.
OF_THE_SCRIPT = frozenset(
    {
        "dropout",
        "flash_attention_generation",
        "fused_attention",
        "fused_loss",
        "fused_norms",
        "loss_chunk_count",
        "optimizer",
        "shifted_logits",
        "softmax",
    }
)


def executor_losses(job: Job) -> tuple[str, ...]:
    """Return a sentence for each field of a job that the executor by itself does not do."""
    scripted = tuple(
        f"{said}, which the plan counts on, is for the script to do"
        for said in _stated(job, OF_THE_SCRIPT)
    )
    return (*executor_differences(job), *scripted)


def executor_differences(job: Job) -> tuple[str, ...]:
    """Return a sentence for each field of a job that no script under the executor can do."""
    undone = Job.model_fields.keys() - DONE_OR_REFUSED - OF_NO_PROGRAM - OF_THE_SCRIPT - {"stack"}
    told = [
        f"the executor does not do {said}, which the plan counts on"
        for said in _stated(job, undone)
    ]
    if job.adapters is not None and job.adapters.whole_scales:
        told.append(
            "under ZeRO-3 the executor shards scales of weights in 4 bits, which the plan counts "
            "whole on every rank (adapters.whole_scales)"
        )
    if job.stack is not Stack.TORCH:
        told.append(
            f"the plan is priced for the stack {job.stack}, and the executor is made of torch's "
            "own parts: its steps and its memory will differ"
        )
    return tuple(told)


def _stated(job: Job, names: Collection[str]) -> Iterator[str]:
    """Yield each of these fields that has not its default, with its value."""
    for name in sorted(names):
        value = getattr(job, name)
        if value not in (None, Job.model_fields[name].default, _AS_IT_IS.get(name)):
            yield f"{name} {str(value).lower() if isinstance(value, bool) else value}"
