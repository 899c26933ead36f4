"""Outcome: what the end of a trial's run says of its plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.errors import InputError
from planner.schema.tuning import TuningTrial

WARM_UP_STEPS = 1
"""So many first steps of a trial are not timed."""

FAILURES_MOST = 3
"""So many trials that fail, with nothing measured, fail for a reason that is no plan's."""

_REASON_LENGTH = 2000
_OUT_OF_MEMORY = (
    "out of memory",  # torch and CUDA
    "outofmemoryerror",
    "can't allocate memory",  # torch's allocator of host memory
    "cannot allocate memory",  # the system
    "memoryerror",  # Python
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
    "failed to cuda malloc",  # NCCL
)


def failure_of(reason: str, *, printed: str = "") -> Mapping[str, Any]:
    """Return the fields of a trial that ended early: without memory, or otherwise.

    `printed` is the end of what the run wrote, for where its own reason does not say.
    """
    said = f"{reason}\n{printed}".lower()
    ran_out = any(words in said for words in _OUT_OF_MEMORY)
    return {
        "outcome": "out_of_memory" if ran_out else "failed",
        "reason": reason[:_REASON_LENGTH],
    }


def all_failed(last: TuningTrial, *, remedy: str) -> InputError:
    """Return the refusal to try more plans where all fail; `remedy` says how to go on."""
    return InputError(
        f"the first {FAILURES_MOST} trials failed, the last with: {last.reason}",
        field="trials",
        value=last.log,
        remedy=f"correct what the log says, and {remedy}",
    )


def took_too_long(seconds_most: float) -> Mapping[str, Any]:
    """Return the fields of a trial that was ended because it went on for too long."""
    minutes = seconds_most / 60.0
    return failure_of(f"ended after {minutes:g} minutes, which --trial-minutes allows it")
