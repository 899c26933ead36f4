"""Tasks about what a script keeps beside its model: settings of optimizers, schedulers, draws."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from executor.session import Session
from planner.errors import InputError
from tests.distributed.own_models import WORDS, Batch, Words, loss, parameter_error
from tests.distributed.plans import GLOBAL_BATCH_SIZE, cpu_plan
from tests.distributed.reference import SEED, floats_differences, global_batches
from tests.distributed.state_tasks import everyone

CPU = torch.device("cpu")


class Counted(torch.optim.Optimizer):
    """Descends by less from step to step: a count in the group, and one of each parameter."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float = 0.1) -> None:
        super().__init__(parameters, {"lr": lr, "steps": 0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update the parameters."""
        del closure
        for group in self.param_groups:
            group["steps"] += 1
            for parameter in group["params"]:
                if parameter not in self.state:
                    self.state[parameter] = {"count": 0, "mean": torch.zeros_like(parameter)}
                state = self.state[parameter]
                state["count"] += 1
                state["mean"].lerp_(parameter.grad, 0.5)
                rate = group["lr"] / (group["steps"] + state["count"])
                parameter.add_(state["mean"], alpha=-rate)


def falling(optimizer: torch.optim.Optimizer) -> LambdaLR:
    """Return a scheduler that halves the rate with each step."""
    return LambdaLR(optimizer, lambda step: 0.5**step)


class Record:
    """What a script keeps: a list that grows."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def state_dict(self) -> dict[str, Any]:
        """Return what was kept."""
        return {"values": torch.tensor(self.values)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what was kept."""
        self.values = state["values"].tolist()


def kept(
    *, strategy: dict[str, Any], steps: int, load: str | None = None, save: str | None = None
) -> dict[str, Any]:
    """Train `steps` more, with a scheduler, draws and a record; compare with one plain run."""
    session = Session(cpu_plan(**strategy), device=CPU)
    trainer = session.parallelize(Words, loss, Counted, declaration=WORDS, seed=SEED)
    rates, record = trainer.schedulers(falling), Record()
    trainer.keep(record=record)
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(5 if load is None else 6)
    if load is not None:
        trainer.load(load)
    total = trainer.step_count + steps
    losses, draws = [], []
    for batch in session.shard(global_batches(0, total)):
        draws += [random.random(), float(np.random.rand()), float(torch.rand(()))]  # noqa: NPY002, S311 - as scripts draw
        losses.append(trainer.step(*batch).loss)
        record.values.append(losses[-1])
        rates.step()
    if save is not None:
        trainer.save(save)
    plain, plain_losses = _plain(total)
    return {
        "losses": losses,
        "plain_losses": plain_losses,
        "parameter_error": parameter_error(trainer, dict(plain.named_parameters())),
        "draws": draws,
        "record": record.values,
        "rates": rates.get_last_lr(),
        "differences": floats_differences(everyone(list(session.report().differences_from_plan))),
    }


def _plain(total: int) -> tuple[nn.Module, list[float]]:
    torch.manual_seed(SEED)
    model = Words()
    optimizer = Counted(model.parameters())
    rates = falling(optimizer)
    losses = []
    for inputs, targets in global_batches(0, total):
        optimizer.zero_grad()
        value = loss(model(inputs), targets)
        value.backward()
        optimizer.step()
        rates.step()
        losses.append(value.item())
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return model, losses


class Unwritable:
    """An object whose state runs code when it is read."""

    def state_dict(self) -> dict[str, Any]:
        """Return a state with a function in it."""
        return {"function": falling}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take nothing over."""


def keep_refusals(*, strategy: dict[str, Any], directory: str) -> dict[str, Any]:
    """Return what refuses an object without a state, one that cannot be written, one not saved."""
    session = Session(cpu_plan(**strategy), device=CPU)
    trainer = session.parallelize(Words, loss, Counted, declaration=WORDS, seed=SEED)
    trainer.save(directory)
    trainer.keep(record=Record())
    messages = [
        _refusal(lambda: trainer.keep(numbers=[1, 2])),
        _refusal(lambda: trainer.keep(record=Record())),
        _refusal(lambda: trainer.load(directory)),
    ]
    trainer.keep(odd=Unwritable())
    messages.append(_refusal(lambda: trainer.save(directory)))
    return {"messages": messages}


def _refusal(action: Callable[[], object]) -> str:
    try:
        action()
    except InputError as error:
        return str(error)
    return ""


def kept_by_rank(
    *, first: dict[str, Any], second: dict[str, Any], directory: str
) -> dict[str, Any]:
    """Keep another record on each rank; return what it goes on with, and what refuses `second`."""
    for strategy, action in ((first, "save"), (first, "load"), (second, "load")):
        session = Session(cpu_plan(**strategy), device=CPU)
        trainer = session.parallelize(Words, loss, Counted, declaration=WORDS, seed=SEED)
        record, same = Record(), Record()
        trainer.keep(record=record, same=same)
        if action == "save":
            record.values, same.values = [float(session.rank)], [7.0]
            trainer.save(directory)
        elif strategy == first:
            trainer.load(directory)
            found = everyone([record.values, same.values])
        else:
            refusal = _refusal(lambda: trainer.load(directory))  # noqa: B023 - called here
    return {"found": found, "refusal": refusal}


class Stream(IterableDataset[Batch]):
    """Rows that each worker shuffles a part of."""

    def __init__(self, rows: list[Batch]) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[Batch]:
        """Yield this worker's rows."""
        worker = get_worker_info()
        assert worker is not None
        own = self._rows[worker.id :: worker.num_workers]
        yield from (own[place] for place in torch.randperm(len(own)).tolist())


def _loader(kind: str, rows: list[Batch]) -> DataLoader[Batch]:
    """Return a loader that shuffles by the script's generator and tells no place."""
    if kind == "streamed":
        return DataLoader(Stream(rows), batch_size=GLOBAL_BATCH_SIZE, num_workers=2)
    return DataLoader(rows, batch_size=GLOBAL_BATCH_SIZE, shuffle=True)  # type: ignore[arg-type]


def plain_loader(
    *, strategy: dict[str, Any], kind: str, steps_of_a_pass: int, directory: str
) -> dict[str, Any]:
    """Return losses of a loader without a place at one go, and with a stop in its second pass."""
    rows = [row for batch in global_batches(0, 4) for row in zip(*batch, strict=True)]

    def trained(steps: int, given: list[Batch] = rows, *, is_resumed: bool = False) -> list[float]:
        session = Session(cpu_plan(**strategy), device=CPU)
        trainer = session.parallelize(Words, loss, Counted, declaration=WORDS, seed=SEED)
        torch.manual_seed(3)
        loader, losses = _loader(kind, given), []
        if is_resumed:
            trainer.load(directory)
        while trainer.step_count < steps:
            for batch in session.shard(loader):
                losses.append(trainer.step(*batch).loss)
                torch.rand(())  # the script draws too
                if trainer.step_count in {steps, steps_of_a_pass}:
                    break
        trainer.save(directory)
        return losses

    whole = trained(7)
    parts = [*trained(5), *trained(7, is_resumed=True)]
    trained(5)
    refusal = _refusal(lambda: trained(7, rows[::-1], is_resumed=True))
    return {"whole": whole, "parts": parts, "refusal": refusal}


def loader_position(*, strategy: dict[str, Any], directory: str) -> dict[str, Any]:
    """Return losses of torchdata's loader at one go, and with a stop in between."""
    whole = _loaded(strategy, 4)
    first = _loaded(strategy, 2, save=directory)
    second = _loaded(strategy, 2, load=directory)
    return {"whole": whole, "parts": [*first, *second]}


def _loaded(
    strategy: dict[str, Any], steps: int, *, load: str | None = None, save: str | None = None
) -> list[float]:
    # Only the one test of it needs the package.
    from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: PLC0415

    session = Session(cpu_plan(**strategy), device=CPU)
    trainer = session.parallelize(Words, loss, Counted, declaration=WORDS, seed=SEED)
    if load is not None:
        trainer.load(load)
    rows = [
        (inputs, targets)
        for batch in global_batches(0, 6)
        for inputs, targets in zip(*batch, strict=True)
    ]
    torch.manual_seed(3)  # the loader shuffles by it
    loader = StatefulDataLoader(rows, batch_size=GLOBAL_BATCH_SIZE, shuffle=True)
    losses = []
    for batch in session.shard(loader):
        losses.append(trainer.step(*batch).loss)
        if len(losses) == steps:
            break
    if save is not None:
        trainer.save(save)
    return losses


KEPT_TASKS: tuple[Callable[..., dict[str, Any]], ...] = (
    kept,
    keep_refusals,
    kept_by_rank,
    plain_loader,
    loader_position,
)
