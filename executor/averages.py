"""Averages: a moving average of the weights, sharded as these are, for evaluation and export.

After each update of the weights p with decay d the average a becomes

    a = p                     after the first update
    a = d · a + (1 - d) · p   after others

Source: `torch.optim.swa_utils.AveragedModel` with `get_ema_multi_avg_fn(d)`, torch 2.13. Buffers
are the model's own, as there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from executor.errors import CheckpointError, ModelMismatchError
from executor.host_memory import hold, is_held, plain
from planner.units import format_bytes

_UPDATES, _DECAY = "updates", "decay"


class Averages:
    """The averages of what a rank trains; there are none until a script asks for them."""

    def __init__(self) -> None:
        self.decay: float | None = None
        self.is_applied = False
        self._model = nn.Module()
        self._pairs: list[tuple[str, nn.Parameter, torch.Tensor]] = []
        self._updates = 0
        self._were_passed_over = False

    def begin(
        self, model: nn.Module, parameters: Iterable[tuple[str, nn.Parameter]], *, decay: float
    ) -> None:
        """Average what is trained of `parameters` from the next update on.

        Raises:
            ModelMismatchError: if `decay` is none, there are averages already, or a checkpoint that
                had some was loaded without them.
        """
        self._check_new(decay)
        self.decay, self._model = decay, model
        for name, parameter in parameters:
            if parameter.requires_grad:
                average = parameter.detach().clone()
                if is_held(plain(parameter).untyped_storage()):
                    hold([average])
                self._pairs.append((name, parameter, average))

    def named(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the averages by their parameters' names in the unsplit model."""
        for name, _, average in self._pairs:
            yield name, average

    def update(self) -> None:
        """Take the weights into the averages."""
        if self.decay is None:
            return
        weight = 1.0 if self._updates == 0 else 1.0 - self.decay
        with torch.no_grad():
            for _, parameter, average in self._pairs:
                plain(average).lerp_(plain(parameter), weight)
        self._updates += 1

    def differences(self) -> Iterator[str]:
        """Yield what memory they take, which no plan has."""
        if self._pairs:
            taken = sum(plain(average).nbytes for _, _, average in self._pairs)
            yield f"averages of weights take {format_bytes(taken)} that the plan did not count"

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let the model have the averages for its weights: to evaluate, generate and export.

        All ranks call it.

        Raises:
            ModelMismatchError: if they are applied already, or nothing was averaged yet.
        """
        if self.is_applied or self._updates == 0:
            raise ModelMismatchError(
                "are applied already" if self.is_applied else "are of no step yet",
                field="averages",
                remedy="apply them after the first step, and once at a time",
            )
        self._exchange()
        self.is_applied = True
        try:
            yield
        finally:
            self.is_applied = False
            self._exchange()

    def check_not_applied(self, action: str) -> None:
        """Return if the model has its own weights.

        Raises:
            ModelMismatchError: if it has the averages.
        """
        if self.is_applied:
            raise ModelMismatchError(
                "would take averages for the weights that are trained",
                field=action,
                remedy="call it outside of `with averages.applied()`",
            )

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds of them beside their tensors."""
        if self.decay is None:
            return {}
        return {_UPDATES: self._updates, _DECAY: self.decay}

    def check_saved(self, stored: Mapping[str, Any]) -> None:
        """Return if a checkpoint with `stored` has averages, where the script wants some.

        Raises:
            CheckpointError: if it has none.
        """
        if self.decay is not None and not stored:
            raise CheckpointError(
                "holds no averages of weights",
                field="trainer.average_weights",
                value=self.decay,
                remedy="call it after trainer.load() to begin them anew",
            )

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Go on as `stored` has it; tensors were read already."""
        self._updates = stored.get(_UPDATES, 0)
        self._were_passed_over = self.decay is None and bool(stored)

    def _check_new(self, decay: float) -> None:
        if not 0.0 <= decay < 1.0:
            raise ModelMismatchError(
                "must be at least 0 and less than 1",
                field="decay",
                value=decay,
                remedy="give the share of the average that stays in each step, such as 0.999",
            )
        if self.decay is not None or self._were_passed_over:
            raise ModelMismatchError(
                "is called a second time"
                if self.decay is not None
                else "comes after trainer.load(), which has passed over the saved averages",
                field="trainer.average_weights",
                value=decay,
                remedy="call it once, before trainer.load()",
            )

    def _exchange(self) -> None:
        """Exchange weights and averages; whole parameters that were gathered are given up."""
        for module in self._model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
        with torch.no_grad():
            for _, parameter, average in self._pairs:
                kept = plain(parameter).clone()
                plain(parameter).copy_(plain(average))
                plain(average).copy_(kept)
