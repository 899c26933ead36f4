"""Tasks about moving averages of weights, compared with torch's own in a plain run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import distributed, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from executor.averages import Averages
from executor.session import Session
from executor.trainer import Trainer
from planner.errors import InputError
from tests.distributed.own_models import WORDS, Words, loss, parameter_error
from tests.distributed.plans import cpu_plan
from tests.distributed.reference import SEED, adamw, global_batches

DECAY = 0.75
STEPS = 4


def averaged(*, first: dict[str, Any], second: dict[str, Any], directory: str) -> dict[str, Any]:
    """Train two steps under `first`, two more under `second`; compare averages with plain ones."""
    saved, written = f"{directory}/saved", f"{directory}/written"
    trainer, _ = _trained(first, until=2)
    trainer.save(saved)
    trainer, averages = _trained(second, until=STEPS, load=saved)
    model, average = _plain()
    held_out = global_batches(STEPS, 1)
    with averages.applied():
        answer = {
            "average_error": parameter_error(trainer, _named(average.module)),
            "average_loss": trainer.evaluate(held_out),
        }
        trainer.export(written, dtype=torch.float64)
    distributed.barrier()
    files = Path(written).glob("*.safetensors")
    read = {name: item for file in files for name, item in load_file(file).items()}
    return {
        **answer,
        "plain_average_loss": _loss(average.module, held_out),
        "written_error": max(
            float((read[name] - item).abs().max()) for name, item in _named(average.module).items()
        ),
        "parameter_error": parameter_error(trainer, _named(model)),
        "differences": list(trainer.averages.differences()),
        "loss": trainer.evaluate(held_out),
        "plain_loss": _loss(model, held_out),
    }


def average_refusals(*, strategy: dict[str, Any], directory: str) -> dict[str, Any]:
    """Return what refuses averages that are wrong, of no step, or lost; and training on them."""
    session, trainer = _made(strategy)
    messages = [_refusal(lambda: trainer.average_weights(1.0))]
    trainer.save(f"{directory}/without")
    averages = trainer.average_weights(DECAY)
    messages += [
        _refusal(lambda: averages.applied().__enter__()),
        _refusal(lambda: trainer.load(f"{directory}/without")),
        _refusal(lambda: trainer.average_weights(DECAY)),
    ]
    (rows,) = session.shard(global_batches(0, 1))
    trainer.step(*rows)
    trainer.save(f"{directory}/with")
    with averages.applied():
        messages += [
            _refusal(lambda: trainer.step(*rows)),
            _refusal(lambda: trainer.save(f"{directory}/with")),
        ]
    _, late = _made(strategy)
    late.load(f"{directory}/with")
    messages.append(_refusal(lambda: late.average_weights(DECAY)))
    return {"messages": messages}


def _made(strategy: dict[str, Any]) -> tuple[Session, Trainer]:
    session = Session(cpu_plan(**strategy), device=torch.device("cpu"))
    trainer = session.parallelize(Words, loss, adamw, declaration=WORDS, seed=SEED)
    return session, trainer


def _trained(
    strategy: dict[str, Any], *, until: int, load: str | None = None
) -> tuple[Trainer, Averages]:
    session, trainer = _made(strategy)
    averages = trainer.average_weights(DECAY)
    if load is not None:
        trainer.load(load)
    for batch in session.shard(global_batches(0, until)):
        trainer.step(*batch)
    return trainer, averages


def _plain() -> tuple[nn.Module, nn.Module]:
    """Return a model that was trained by torch alone, and torch's own average of it."""
    torch.manual_seed(SEED)
    model = Words()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
    optimizer = adamw(model.parameters())
    for inputs, targets in global_batches(0, STEPS):
        optimizer.zero_grad()
        loss(model(inputs), targets).backward()
        optimizer.step()
        average.update_parameters(model)
    return model, average


def _named(model: Any) -> dict[str, torch.Tensor]:
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def _loss(model: Any, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
    ((inputs, targets),) = batches
    with torch.no_grad():
        return float(loss(model(inputs), targets))


def _refusal(action: Callable[[], object]) -> str:
    try:
        action()
    except InputError as error:
        return str(error)
    return ""


AVERAGE_TASKS: tuple[Callable[..., dict[str, Any]], ...] = (averaged, average_refusals)
