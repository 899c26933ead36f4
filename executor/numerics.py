"""Numerics: all that is done to the numbers of a script's step, and that a report says of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from executor.errors import ModelMismatchError
from executor.gradients import USUAL_NORM, LossScale, check_norm
from executor.losses import LossFunction
from executor.precision import compute_dtype, wide, widened
from planner.schema.job import Job, Precision
from planner.schema.run import AppliedNumerics


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """What a step does to numbers beside what model, loss and optimizer do themselves.

    Gradients above `largest_norm` are clipped to it. Logits reach the loss in `output_dtype`, or
    where it is left out in 32 bits at least, as under torch's autocast.
    """

    precision: Precision
    largest_norm: float | None
    output_dtype: torch.dtype | None
    ignored_target: int | None
    loss_scale: LossScale | None = field(init=False)

    def __post_init__(self) -> None:
        """Take a loss scale where the precision needs one."""
        if self.output_dtype is not None and not self.output_dtype.is_floating_point:
            raise ModelMismatchError(
                "is not a format of floating-point numbers",
                field="output_dtype",
                value=self.output_dtype,
                remedy="use torch.float32, or torch.bfloat16 to leave logits as bf16 computes them",
            )
        scale = LossScale() if self.precision is Precision.FP16 else None
        object.__setattr__(self, "loss_scale", scale)

    @staticmethod
    def of(
        job: Job,
        max_gradient_norm: float | None,
        *,
        output_dtype: torch.dtype | None,
        ignored_target: int | None,
    ) -> Numerics:
        """Return what a job and a script ask for.

        Raises:
            ModelMismatchError: if a norm or a format is none.
        """
        return Numerics(
            precision=job.precision,
            largest_norm=stated_norm(job, max_gradient_norm),
            output_dtype=output_dtype,
            ignored_target=ignored_target,
        )

    def loss(self, loss_function: LossFunction) -> LossFunction:
        """Return `loss_function` of logits in their format, scaled; sums of it have 32 bits."""

        def wide_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            loss: torch.Tensor = tree_map_only(
                torch.Tensor, widened, loss_function(self._output(logits), targets)
            )
            return loss

        return wide_loss if self.loss_scale is None else self.loss_scale.of(wide_loss)

    def applied(self) -> AppliedNumerics:
        """Return what the report says."""
        own = self.output_dtype
        wide_enough = wide(compute_dtype(self.precision))
        return AppliedNumerics(
            precision=self.precision.value,
            logits_format=str(wide_enough if own is None else own).removeprefix("torch."),
            largest_gradient_norm=self.largest_norm,
            loss_scale=None if self.loss_scale is None else self.loss_scale.value,
            ignored_target=self.ignored_target,
        )

    def _output(self, outputs: Any) -> Any:
        return tree_map_only(torch.Tensor, self._in_format, outputs)

    def _in_format(self, output: torch.Tensor) -> torch.Tensor:
        if not output.dtype.is_floating_point:
            return output
        return widened(output) if self.output_dtype is None else output.to(self.output_dtype)


def stated_norm(job: Job, asked: float | None) -> float | None:
    """Return the norm that a script's gradients are clipped to: as `asked`, else as the job states.

    A job that says nothing of clipping is priced with it, and leaves the script's gradients alone.

    Raises:
        ModelMismatchError: if it is no positive number.
    """
    if asked is not None:
        return check_norm(asked)
    return USUAL_NORM if job.gradient_clipping else None
