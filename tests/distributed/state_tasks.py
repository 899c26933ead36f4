"""Tasks about model states: offload, formats, norms of gradients. The same answer on every rank."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch._dynamo.utils
from torch import distributed, nn
from torch.distributed.tensor import DTensor
from torch.func import functional_call
from torch.nn import functional

from executor.apply.materialise import unsplit_name
from executor.host_memory import held_bytes
from executor.losses import next_token_loss
from executor.session import Session
from executor.telemetry import device_bytes
from executor.trainer import StepMetrics, Trainer
from planner.errors import InputError
from tests.distributed.plans import GLOBAL_BATCH_SIZE, cpu_plan
from tests.distributed.reference import (
    SEED,
    SHORT,
    STEP_COUNT,
    adamw,
    build_model,
    floats_differences,
    global_batches,
    initialised,
    planned_model,
    sized,
)

CPU = torch.device("cpu")
FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}


@dataclass(frozen=True)
class StateRun:
    """What the unsharded run gave, by the unsplit model's names."""

    losses: list[float]
    norms: list[float]
    first_gradients: dict[str, torch.Tensor]
    parameters: dict[str, torch.Tensor]


def unsharded(**run: Any) -> StateRun:
    """Train in the floats of the moment in one process: kind, precision, largest_norm, and so on.

    Micro-batches are as the sharded run has them, and each of `data_degree` ranks has a mean of its
    own, so that 16 bits are rounded alike, and vanish alike.
    """
    return _unsharded(**run, floats=torch.get_default_dtype())


@functools.cache
def _unsharded(
    *,
    kind: str,
    precision: str,
    largest_norm: float | None,
    micro_batch_size: int,
    steps: int,
    data_degree: int = 1,
    floats: torch.dtype,
) -> StateRun:
    model = initialised(kind)
    weights = dict(model.named_parameters())
    if precision == "fp8":
        from torchao import float8  # noqa: PLC0415 - other runs do without

        config = float8.Float8LinearConfig(emulate=True)
        float8.convert_to_float8_training(model.blocks, config=config)
    optimizer = adamw(weights.values())
    count = GLOBAL_BATCH_SIZE // micro_batch_size
    scale = 2.0**16 if precision == "fp16" else 1.0  # without it small gradients vanish
    losses, norms = [], []
    first_gradients: dict[str, torch.Tensor] = {}
    for inputs, targets in global_batches(0, steps):
        optimizer.zero_grad()
        total = 0.0
        for rows, wanted in zip(inputs.chunk(count), targets.chunk(count), strict=True):
            copies = {
                name: value.to(FORMATS.get(precision, floats)) for name, value in weights.items()
            }
            output = functional_call(model, copies, (rows,), tie_weights=True)
            logits = output if isinstance(output, torch.Tensor) else output.logits
            wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
            loss = functional.cross_entropy(wide.flatten(0, 1), wanted.flatten())
            (loss * scale * data_degree / count).backward()
            total += loss.item() / count
        for weight in weights.values():
            weight.grad.div_(scale * data_degree)
        most = float("inf") if largest_norm is None else largest_norm
        norms.append(float(nn.utils.clip_grad_norm_(weights.values(), most)))
        if not losses:
            first_gradients = {name: value.grad.clone() for name, value in weights.items()}
        optimizer.step()
        losses.append(total)
    parameters = {name: value.detach().clone() for name, value in weights.items()}
    return StateRun(
        losses=losses, norms=norms, first_gradients=first_gradients, parameters=parameters
    )


def state_parity(
    *,
    strategy: dict[str, Any],
    kind: str = "decoder",
    precision: str = "fp32",
    largest_norm: float | None = None,
    steps: int = STEP_COUNT,
    compiler: str | None = None,
) -> dict[str, Any]:
    """Train and compare losses, norms and parameters with the unsharded run."""
    gradients: dict[nn.Parameter, torch.Tensor] = {}
    kind = sized(kind, strategy)
    session, trainer = state_trainer(
        strategy,
        kind=kind,
        precision=precision,
        largest_norm=largest_norm,
        compiler=compiler,
        first_gradients=gradients,
    )
    metrics = [trainer.step(*batch) for batch in session.shard(global_batches(0, steps))]
    reference = unsharded(
        kind=kind,
        precision=precision,
        largest_norm=largest_norm,
        micro_batch_size=session.strategy.micro_batch_size,
        steps=steps,
        data_degree=session.mesh.data_degree,
    )
    return {
        "losses": [item.loss for item in metrics],
        "reference_losses": reference.losses,
        "largest_norm": largest_norm,
        "norms": [item.gradient_norm for item in metrics],
        "reference_norms": reference.norms,
        "gradient_error": _gradient_error(trainer, gradients, reference.first_gradients),
        "parameter_error": parameter_error(trainer, reference.parameters),
        "formats": sorted({str(item.dtype) for item in _state_tensors(trainer)}),
        "differences": floats_differences(everyone(list(session.report().differences_from_plan))),
        "compiled_graphs": int(torch._dynamo.utils.counters["stats"]["unique_graphs"]),
    }


def residence(*, strategy: dict[str, Any], steps: int = 2) -> dict[str, Any]:
    """Return for every rank where its model states lie after some steps, and a step's peak."""
    gc.collect()
    before = held_bytes()
    session, trainer = state_trainer(strategy)
    *first, last = session.shard(global_batches(0, steps))
    for batch in first:
        trainer.step(*batch)
    trainer.metered_step(*last)
    states = [*trainer.model.parameters(), *_state_tensors(trainer)]
    mine = {
        "device_bytes": device_bytes(states),
        "host_bytes": held_bytes() - before,
        "peak_memory_bytes": session.report().peak_memory_bytes,
        "differences": list(session.report().differences_from_plan),
    }
    return {"ranks": everyone([mine])}


def overflow(*, strategy: dict[str, Any], scale: float) -> dict[str, Any]:
    """Return what a step does whose scaled loss is beyond fp16, and the one after it."""
    session, trainer = state_trainer(strategy, precision="fp16")
    loss_scale = trainer.loss_scale
    assert loss_scale is not None
    loss_scale.value = scale
    first, second = session.shard(global_batches(0, 2))
    before = [_local(value).detach().clone() for value in trainer.model.parameters()]
    skipped = trainer.step(*first)
    changed = [
        not torch.equal(old, _local(new))
        for old, new in zip(before, trainer.model.parameters(), strict=True)
    ]
    scale_after = loss_scale.value
    loss_scale.value = 2.0**10
    return {
        "skipped": everyone([skipped.was_skipped]),
        "changed": everyone([any(changed)]),
        "scale": everyone([scale_after]),
        "next": _as_fields(trainer.step(*second)),
    }


def state_trainer(
    strategy: dict[str, Any],
    *,
    kind: str = "decoder",
    precision: str = "fp32",
    largest_norm: float | None = None,
    compiler: str | None = None,
    first_gradients: dict[nn.Parameter, torch.Tensor] | None = None,
    checkpoint_follows: bool = False,
) -> tuple[Session, Trainer]:
    """Return a session and its trainer of the small model, which leaves its `first_gradients`."""
    kind = sized(kind, strategy)
    plan = cpu_plan(model=planned_model(kind), precision=precision, **strategy)
    session = Session(plan, device=CPU, compiler=compiler)
    trainer = session.parallelize(
        lambda: build_model(kind),
        next_token_loss,
        adamw if first_gradients is None else remembering(first_gradients),
        seed=SEED,
        max_gradient_norm=largest_norm,
        checkpoint_follows=checkpoint_follows,
    )
    return session, trainer


def factored(*, strategy: dict[str, Any]) -> dict[str, Any]:
    """Train with an optimizer that looks at whole rows, and compare, or return its refusal."""
    session = Session(cpu_plan(model=planned_model(SHORT), **strategy), device=CPU)
    trainer = session.parallelize(
        lambda: build_model(SHORT), next_token_loss, torch.optim.Adafactor, seed=SEED
    )
    batches = session.shard(global_batches(0, 3))
    try:
        losses = [trainer.step(*batch).loss for batch in batches]
    except InputError as error:
        return {"losses": [], "messages": everyone([str(error)])}
    return {"losses": losses, "reference_losses": _factored_losses(), "messages": []}


def _factored_losses() -> list[float]:
    model = initialised(SHORT)
    optimizer = torch.optim.Adafactor(model.parameters())
    losses = []
    for inputs, targets in global_batches(0, 3):
        optimizer.zero_grad()
        loss = next_token_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def remembering(
    gradients: dict[nn.Parameter, torch.Tensor],
) -> Callable[[list[nn.Parameter]], torch.optim.Optimizer]:
    """Return a function that makes optimizers, which leave what they first see in `gradients`."""

    def remember(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                gradients.setdefault(parameter, parameter.grad.detach().clone())

    def optimizer_function(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        optimizer = adamw(parameters)
        optimizer.register_step_pre_hook(remember)
        return optimizer

    return optimizer_function


def _gradient_error(
    trainer: Trainer,
    gradients: dict[nn.Parameter, torch.Tensor],
    expected: dict[str, torch.Tensor],
) -> float:
    worst = 0.0
    taken = {key: value for update in trainer.updates for key, value in update.pairs()}
    for name, parameter in trainer.model.named_parameters():
        value = gradients[taken[parameter]]
        whole = value.full_tensor() if isinstance(value, DTensor) else value
        wanted = expected[unsplit_name(name, trainer.declaration)]
        worst = max(worst, float((whole - wanted).abs().max() / wanted.abs().max()))
    return max(everyone([worst]))


def parameter_error(trainer: Trainer, expected: dict[str, torch.Tensor]) -> float:
    """Return the largest difference of any rank's parameters, relative to their magnitude."""
    worst = 0.0
    for name, parameter in trainer.model.named_parameters():
        value = parameter.detach()
        whole = value.full_tensor() if isinstance(value, DTensor) else value
        wanted = expected[unsplit_name(name, trainer.declaration)]
        worst = max(worst, float((whole - wanted).abs().max() / wanted.abs().max()))
    return max(everyone([worst]))


def everyone(mine: list[Any]) -> list[Any]:
    """Return what all ranks have, in one list."""
    gathered: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(gathered, mine)
    return [item for part in gathered for item in part]


def _state_tensors(trainer: Trainer) -> Iterator[torch.Tensor]:
    for optimizer in trainer.optimizers:
        for state in optimizer.state.values():
            yield from (value for value in state.values() if isinstance(value, torch.Tensor))


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _as_fields(metrics: StepMetrics) -> dict[str, Any]:
    return {"loss": metrics.loss, "was_skipped": metrics.was_skipped}


STATE_TASKS: tuple[Callable[..., dict[str, Any]], ...] = (
    state_parity,
    residence,
    overflow,
    factored,
)
