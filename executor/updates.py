"""Updates: optimizers, each beside the states that it keeps, wherever the plan has them live.

| offloaded   | parameters            | states | the update runs                         |
|-------------|-----------------------|--------|-----------------------------------------|
| nothing     | device                | device | on the device                           |
| optimizer   | device, copy on host  | host   | on the host: gradients go, values come  |
| parameters  | host                  | device | on the device, one layer after another  |
| both        | host                  | host   | on the host                             |

Source: Ren et al. 2021 (ZeRO-Offload, arXiv:2101.06840), section 4, for the second row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from executor.errors import UnsupportedPlanError
from executor.gradients import Gradients, Treated
from executor.host_memory import hold, host_copy, like, plain, working_on_host
from executor.optimizers import OptimizerFunction, made_by
from planner.schema.strategy import Offload

_NO_SHARDED_OPERATOR = ("Sharding propagation failed", "does not have a sharding strategy")
_WHOLE_NUMBERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}

Made = Callable[[list[Any]], torch.optim.Optimizer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Residence:
    """Modules of one layer or edge, and what of their states lives on the host."""

    modules: tuple[nn.Module, ...]
    offload: frozenset[Offload]


class Update(Protocol):
    """An optimizer of some parameters."""

    optimizer: torch.optim.Optimizer

    def pairs(self) -> Sequence[tuple[nn.Parameter, nn.Parameter]]:
        """Return the model's parameters, and what the optimizer takes for each."""

    def step(self) -> None:
        """Update the model's parameters by their gradients."""

    def parameters_changed(self) -> None:
        """Take over values that the model's parameters got from elsewhere."""


class Beside:
    """States where the parameters are."""

    def __init__(self, parameters: list[nn.Parameter], function: Made, *, on_host: bool) -> None:
        self.optimizer = function(parameters)
        self._parameters = parameters
        self._on_host = on_host
        self._hold()

    def pairs(self) -> Sequence[tuple[nn.Parameter, nn.Parameter]]:
        """Return each parameter twice."""
        return [(parameter, parameter) for parameter in self._parameters]

    def step(self) -> None:
        """Update the parameters where they are."""
        with working_on_host() if self._on_host else nullcontext():
            _step(self.optimizer)
        self._hold()

    def parameters_changed(self) -> None:
        """Do nothing: the optimizer takes the model's own parameters."""
        self._hold()

    def _hold(self) -> None:
        if self._on_host:
            hold(self._parameters)
            hold(state_tensors(self.optimizer))


class OnHost:
    """States on the host beside fp32 copies of the parameters, which the host updates.

    What a script writes to the parameters between steps is taken over.
    """

    def __init__(self, parameters: list[nn.Parameter], function: Made, *, is_pinned: bool) -> None:
        self._is_pinned = is_pinned
        self._copies = [(item, _copied(item, is_pinned=is_pinned)) for item in parameters]
        self._wait()
        self.optimizer = function([copy for _, copy in self._copies])
        self._sums = self._bit_sums()

    def pairs(self) -> Sequence[tuple[nn.Parameter, nn.Parameter]]:
        """Return each parameter with its copy."""
        return self._copies

    def step(self) -> None:
        """Fetch the gradients, update the copies, and send them back."""
        if self._were_written():
            self.parameters_changed()
        with working_on_host():
            for parameter, copy in self._copies:
                copy.grad = self._fetched(parameter)
                parameter.grad = None
            self._wait()
            _step(self.optimizer)
            self.optimizer.zero_grad(set_to_none=True)
        hold(state_tensors(self.optimizer))
        with torch.no_grad():
            for parameter, copy in self._copies:
                plain(parameter).copy_(plain(copy), non_blocking=self._is_pinned)
        self._wait()
        self._sums = self._bit_sums()

    def parameters_changed(self) -> None:
        """Copy the parameters again."""
        with torch.no_grad():
            for parameter, copy in self._copies:
                plain(copy).copy_(plain(parameter))
        hold(state_tensors(self.optimizer))
        self._sums = self._bit_sums()

    def _were_written(self) -> bool:
        """Return whether the parameters are no longer what the last update has made of them."""
        if self._is_pinned:
            return self._bit_sums() != self._sums
        return not all(torch.equal(plain(item), plain(copy)) for item, copy in self._copies)

    def _bit_sums(self) -> list[int]:
        """Return a number for each parameter on a GPU, from which nothing else is to be fetched."""
        if not self._is_pinned:
            return []
        sums = [bit_sum(plain(parameter).detach()) for parameter, _ in self._copies]
        found: list[int] = torch.stack(sums).tolist()
        return found

    def _fetched(self, parameter: nn.Parameter) -> torch.Tensor | None:
        gradient = parameter.grad
        if gradient is None:
            return None
        return like(host_copy(plain(gradient), is_pinned=self._is_pinned), gradient)

    def _wait(self) -> None:
        if self._is_pinned:
            torch.cuda.current_stream().synchronize()


class Streamed:
    """States on the device, parameters on the host: both meet on the device for the update alone.

    The copies' storage is taken before the step and given up after it, so that of several such
    updates one after another only one has its parameters on the device.
    """

    def __init__(
        self, parameters: list[nn.Parameter], function: Made, *, device: torch.device
    ) -> None:
        self._device = device
        # Some optimizers take values over when they are made.
        self._copies = [(item, _copied_to(item, device)) for item in parameters]
        self._sizes = [plain(copy).untyped_storage().nbytes() for _, copy in self._copies]
        self.optimizer = function([copy for _, copy in self._copies])
        self._give_up()
        hold(parameters)

    def pairs(self) -> Sequence[tuple[nn.Parameter, nn.Parameter]]:
        """Return each parameter with its copy."""
        return self._copies

    def step(self) -> None:
        """Bring parameters and gradients, update, and take the parameters back."""
        for (parameter, copy), size in zip(self._copies, self._sizes, strict=True):
            plain(copy).untyped_storage().resize_(size)
            with torch.no_grad():
                plain(copy).copy_(plain(parameter))
            if parameter.grad is not None:
                copy.grad = like(plain(parameter.grad).to(self._device), parameter.grad)
                parameter.grad = None
        _step(self.optimizer)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            for parameter, copy in self._copies:
                plain(parameter).copy_(plain(copy))
        self._give_up()
        hold(parameter for parameter, _ in self._copies)

    def parameters_changed(self) -> None:
        """Do nothing: every step brings the parameters anew."""

    def _give_up(self) -> None:
        for _, copy in self._copies:
            plain(copy).untyped_storage().resize_(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnd:
    """What follows the last backward of a step: gradients are treated, parameters updated."""

    updates: tuple[Update, ...]
    gradients: Gradients

    @property
    def scale(self) -> float:
        """Return what the loss is multiplied by in this step."""
        loss_scale = self.gradients.loss_scale
        return 1.0 if loss_scale is None else loss_scale.value

    def run(self) -> Treated:
        """Treat the gradients, and update if they serve; a collective call where any is."""
        treated = self.gradients.treat()
        for update in self.updates if treated.are_usable else ():
            update.step()
        return treated


def updates_of(
    model: nn.Module,
    residences: Iterable[Residence],
    optimizer_function: OptimizerFunction,
    *,
    device: torch.device,
    name_of: Callable[[str], str],
) -> tuple[Update, ...]:
    """Return what updates the parameters of `model` that are trained, each where it resides.

    Frozen ones, which require no gradient, have no states.

    Layer groups of different ZeRO stages lie on different meshes, and an optimizer's fused
    operators take tensors of one mesh at a time: one optimizer for each mesh and place. `name_of`
    returns a parameter's name in the unsplit model.
    """
    names = {item: name_of(name) for name, item in model.named_parameters()}
    groups: dict[object, list[nn.Parameter]] = {}
    offloads = _offloads(residences)
    for parameter in model.parameters():
        layer, offload = offloads.get(parameter, (None, frozenset()))
        if not parameter.requires_grad:
            hold([parameter] if Offload.PARAMETERS in offload else [])
            continue
        alone = layer if offload == {Offload.PARAMETERS} else None
        groups.setdefault((_mesh(parameter), offload, alone), []).append(parameter)
    return tuple(
        _update_of(
            group,
            offloads.get(group[0], (None, frozenset()))[1],
            made_by(optimizer_function, [names[item] for item in group]),
            device,
        )
        for group in groups.values()
    )


def _offloads(
    residences: Iterable[Residence],
) -> dict[nn.Parameter, tuple[int, frozenset[Offload]]]:
    """Return the layer of each parameter and what of its states is offloaded."""
    return {
        parameter: (layer, residence.offload)
        for layer, residence in enumerate(residences)
        for module in residence.modules
        for parameter in module.parameters()
    }


def _update_of(
    parameters: list[nn.Parameter],
    offload: frozenset[Offload],
    function: Made,
    device: torch.device,
) -> Update:
    if Offload.OPTIMIZER not in offload and Offload.PARAMETERS in offload:
        return Streamed(parameters, function, device=device)
    if Offload.OPTIMIZER in offload and Offload.PARAMETERS not in offload:
        return OnHost(parameters, function, is_pinned=device.type == "cuda")
    return Beside(parameters, function, on_host=Offload.PARAMETERS in offload)


def _step(optimizer: torch.optim.Optimizer) -> None:
    """Update the optimizer's parameters.

    Raises:
        UnsupportedPlanError: if torch has not all of its operators for sharded parameters.
    """
    try:
        optimizer.step()
    except RuntimeError as error:  # NotImplementedError is one
        if not any(words in str(error) for words in _NO_SHARDED_OPERATOR):
            raise
        raise UnsupportedPlanError(
            "torch has not all of this optimizer's operators for sharded parameters",
            field="optimizer_function",
            value=type(optimizer).__qualname__,
            remedy="plan with zero_stage 0 and tensor_parallel_degree 1, or use an optimizer that "
            "updates each number by itself, as AdamW and SGD do without fused=True",
        ) from error


def state_tensors(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """Yield the tensors that `optimizer` keeps between steps."""
    for state in optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, torch.Tensor))


def bit_sum(tensor: torch.Tensor) -> torch.Tensor:
    """Return the sum of the bits of a plain `tensor`, read as whole numbers: nothing is rounded."""
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return real.reshape(-1).view(_WHOLE_NUMBERS[real.element_size()]).sum()


def _mesh(parameter: nn.Parameter) -> Any:
    return parameter.device_mesh if isinstance(parameter, DTensor) else None


def _copied(parameter: nn.Parameter, *, is_pinned: bool) -> nn.Parameter:
    content = host_copy(plain(parameter).detach(), is_pinned=is_pinned)
    return _in_place_of(parameter, content)


def _copied_to(parameter: nn.Parameter, device: torch.device) -> nn.Parameter:
    return _in_place_of(parameter, plain(parameter).detach().to(device, copy=True))


def _in_place_of(parameter: nn.Parameter, local: torch.Tensor) -> nn.Parameter:
    """Return what an optimizer takes for `parameter`, with what a script has noted on it."""
    copy = nn.Parameter(like(local, parameter), requires_grad=parameter.requires_grad)
    copy.__dict__.update(vars(parameter))
    return copy
