"""Kernels: what a plan would take if its program had kernels that its job leaves out.

A plan is for the program that its job describes. The same layout is priced again with each kernel
that the job does not have, by itself, and with all of them that help.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import ValidationError

from planner.cost.step import predictions
from planner.errors import InputError
from planner.requests.resolution import resolved_request
from planner.schema.job import Job
from planner.schema.plan import Plan, Prediction
from planner.units import format_bytes

_KERNELS: tuple[tuple[str, bool | int], ...] = (
    ("fused_norms", True),
    ("flash_attention_generation", 3),
    ("fused_linear_loss", True),
    ("cuda_graphs", True),
    ("overlapped_gradients", True),
    ("overlapped_tensor_parallel", True),
)
_LEAST_RATIO = 0.01  # of the step, or of a device's memory, that is worth a line


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelGain:
    """What a layout would take less with some fields of its job set.

    `step_ratio` is of the step, negative where it is longer; `bytes_less` of the fullest device.
    """

    fields: tuple[tuple[str, bool | int], ...]
    step_ratio: float
    bytes_less: float
    memory_ratio: float

    @property
    def is_worth_it(self) -> bool:
        """Return whether the step or a device's memory is a hundredth less, and neither more."""
        least, most = sorted((self.step_ratio, self.memory_ratio))
        return most >= _LEAST_RATIO and least > -_LEAST_RATIO


def kernel_gains(plan: Plan) -> tuple[KernelGain, ...]:
    """Return what each kernel would make of a plan's layout, then all of those that help."""
    before = _priced(plan, plan.job.resolved)
    if before is None:
        return ()
    open_kernels = [(name, value) for name, value in _KERNELS if _is_open(plan.job.resolved, name)]
    gains = [_gain(plan, before, (kernel,)) for kernel in open_kernels]
    found = tuple(gain for gain in gains if gain is not None and gain.is_worth_it)
    if len(found) < 2:
        return found
    together = _gain(plan, before, tuple(field for gain in found for field in gain.fields))
    return found if together is None else (*found, together)


def kernel_words(plan: Plan) -> Iterator[str]:
    """Yield a sentence for each, in the fields that say so."""
    for gain in kernel_gains(plan):
        fields = " and ".join(f"{name}={_spelled(value)}" for name, value in gain.fields)
        parts = []
        if gain.step_ratio >= _LEAST_RATIO:
            parts.append(f"a step would take {gain.step_ratio:.0%} less")
        if gain.memory_ratio >= _LEAST_RATIO:
            parts.append(f"a device would hold {format_bytes(gain.bytes_less)} less")
        yield f"with {fields}: {' and '.join(parts)}"


def _spelled(value: bool | int) -> str:
    return str(value).lower()


def _is_open(job: Job, name: str) -> bool:
    """Return whether a job leaves a kernel open; `fused_elementwise` says it of norms as well."""
    if name == "fused_norms" and job.fused_elementwise is not None:
        return False
    return getattr(job, name) is Job.model_fields[name].default


def _gain(
    plan: Plan, before: Prediction, fields: tuple[tuple[str, bool | int], ...]
) -> KernelGain | None:
    """Return what fields of the job change, `None` where the job cannot have them."""
    try:
        job = Job.model_validate({**plan.job.resolved.model_dump(), **dict(fields)})
    except ValidationError:
        return None
    after = _priced(plan, job)
    if after is None:
        return None
    seconds = [one.step_seconds.p50 for one in (before, after)]
    bytes_ = [max(stage.peak_memory_bytes for stage in one.stages) for one in (before, after)]
    return KernelGain(
        fields=fields,
        step_ratio=1.0 - seconds[1] / seconds[0],
        bytes_less=bytes_[0] - bytes_[1],
        memory_ratio=1.0 - bytes_[1] / bytes_[0],
    )


def _priced(plan: Plan, job: Job) -> Prediction | None:
    """Return what the plan's layout takes for a job, `None` where the two do not go together."""
    try:
        request = resolved_request(plan.model, plan.cluster, job)
    except InputError:
        return None
    return next(
        predictions(request.workload, request.hardware, request.job.resolved, [plan.strategy])
    )
