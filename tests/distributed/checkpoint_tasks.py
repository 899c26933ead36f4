"""Tasks about checkpoints: going on in other layouts, deaths while saving, and what is refused."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter

import executor.checkpoint
import executor.checkpoint_record
import executor.shared_folder
from executor.checkpoint import Progress
from executor.errors import ModelMismatchError
from executor.local_tensor import local_tensor
from executor.losses import next_token_loss
from executor.session import Session
from executor.trainer import Trainer
from planner.errors import InputError
from tests.distributed.plans import cpu_plan
from tests.distributed.reference import (
    SEED,
    SHORT,
    adamw,
    build_model,
    floats_differences,
    global_batches,
    planned_model,
    sized,
)
from tests.distributed.state_tasks import everyone, parameter_error, state_trainer, unsharded


def go_on(
    *,
    strategy: dict[str, Any],
    steps: int,
    load: str | None = None,
    save: str | None = None,
    kind: str = "decoder",
    precision: str = "fp32",
    micro_batch_size: int = 1,
    data_degree: int = 1,
    compared: int | None = None,
) -> dict[str, Any]:
    """Train `steps` more steps, from a checkpoint if one is named, and compare with one run.

    The loader begins anew each time. `compared` is the last step of the undisturbed run.
    Where a checkpoint follows no values are drawn, and nothing is done before it is loaded.
    """
    kind = sized(kind, strategy)
    session, trainer = state_trainer(
        strategy,
        kind=kind,
        precision=precision,
        largest_norm=1.0,
        checkpoint_follows=load is not None,
    )
    before = None if load is None else _loaded(session, trainer, load)
    total = trainer.step_count + steps
    losses = [trainer.step(*batch).loss for batch in session.shard(global_batches(0, total))]
    if save is not None:
        trainer.save(save, extra={"losses": losses})
    answer: dict[str, Any] = {
        "losses": losses,
        "step": trainer.step_count,
        "extra": None if before is None else dict(before.extra),
        "differences": floats_differences(everyone(list(session.report().differences_from_plan))),
    }
    if compared is not None:
        run = unsharded(
            kind=kind,
            precision=precision,
            largest_norm=1.0,
            micro_batch_size=micro_batch_size,
            steps=compared,
            data_degree=data_degree,
        )
        answer["reference_losses"] = run.losses
        answer["parameter_error"] = parameter_error(trainer, run.parameters)
    return answer


def _loaded(session: Session, trainer: Trainer, directory: str) -> Progress:
    """Load, after a step was refused for want of values."""
    assert all(local_tensor(item).isnan().all() for item in trainer.model.parameters())
    batch = next(iter(session.shard(global_batches(0, 1))))
    with pytest.raises(ModelMismatchError, match=r"call trainer\.load\(directory\) first"):
        trainer.step(*batch)
    return trainer.load(directory)


def dying_save(*, strategy: dict[str, Any], load: str, moment: str) -> dict[str, Any]:
    """Train one more step and die at a `moment` of saving it."""
    session, trainer = state_trainer(strategy, largest_norm=1.0)
    trainer.load(load)
    for batch in session.shard(global_batches(0, trainer.step_count + 1)):
        trainer.step(*batch)
    _MOMENTS[moment]()
    trainer.save(load)
    return {}


def refusals(
    *, strategy: dict[str, Any], directory: str, optimizer: str = "adamw", verb: str = "load"
) -> dict[str, Any]:
    """Return the message with which each rank refuses to load from, or save to, `directory`.

    And whether a parameter of any rank is another than before.
    """
    plan = cpu_plan(model=planned_model(SHORT), **strategy)
    session = Session(plan, device=torch.device("cpu"))
    functions = {"adamw": adamw, "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1)}
    trainer = session.parallelize(
        lambda: build_model(SHORT), next_token_loss, functions[optimizer], seed=SEED
    )
    before = [local_tensor(parameter).clone() for parameter in trainer.model.parameters()]
    message = None
    try:
        getattr(trainer, verb)(directory)
    except InputError as error:
        message = f"{type(error).__name__}: {error}"
    after = [local_tensor(parameter) for parameter in trainer.model.parameters()]
    changed = not all(map(torch.equal, before, after))
    return {"messages": everyone([message]), "changed": everyone([changed])}


def unshared_directory(*, directory: str) -> dict[str, Any]:
    """Return the message of each rank where each has a directory of its own, and what is left."""
    executor.shared_folder._SEEN_SECONDS = 0.2
    own = Path(f"{directory}-{torch.distributed.get_rank()}")
    message = None
    try:
        executor.shared_folder.check_shared(own)
    except InputError as error:
        message = str(error)
    left = sorted(path.name for path in own.glob("*"))
    return {"messages": everyone([message]), "left": everyone([left])}


def weights_after_load(*, strategy: dict[str, Any], directory: str) -> dict[str, Any]:
    """Return the step of a checkpoint, and the next loss from there."""
    session, trainer = state_trainer(strategy, largest_norm=1.0)
    trainer.load(directory)
    step = trainer.step_count
    return {"step": step, "loss": _next_loss(session, trainer, step)}


def several_saves(*, strategy: dict[str, Any], directory: str) -> dict[str, Any]:
    """Save after each of seven steps, and load what is kept of step 3 and of step 1."""
    session, trainer = state_trainer(strategy, largest_norm=1.0)
    losses = []
    for batch in session.shard(global_batches(0, 7)):
        losses.append(trainer.step(*batch).loss)
        trainer.save(directory, keep=2, keep_every=3)
    later, again = state_trainer(strategy, largest_norm=1.0)
    again.load(directory, step=3)
    refusal = None
    try:
        again.load(directory, step=1)
    except InputError as error:
        refusal = str(error)
    return {
        "step": again.step_count,
        "loss": _next_loss(later, again, 3),
        "wanted": losses[3],
        "refusal": refusal,
    }


def full_disk(*, strategy: dict[str, Any], directory: str) -> dict[str, Any]:
    """Save after each of three steps; at the second, rank 1's disk takes no more than a few bytes.

    A limit on the size of files stands for the disk: writing beyond it is an error as well.
    """
    session, trainer = state_trainer(strategy, largest_norm=1.0)
    rows = session.shard(global_batches(0, 3))
    losses = [trainer.step(*next(rows)).loss]
    trainer.save(directory)
    losses.append(trainer.step(*next(rows)).loss)
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    if session.rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, usual[1]))
    refusal = ""
    try:
        trainer.save(directory)
    except InputError as error:
        refusal = str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    left = sorted(path.name.rpartition("-")[0] for path in Path(directory).glob("step-*"))
    later, again = state_trainer(strategy, largest_norm=1.0)
    again.load(directory)
    answer = {"step": again.step_count, "loss": _next_loss(later, again, 1), "wanted": losses[1]}
    trainer.step(*next(rows))
    trainer.save(directory)
    again.load(directory)
    return {**answer, "refusals": everyone([refusal]), "left": left, "last": again.step_count}


def save_in_background(*, strategy: dict[str, Any], directory: str, file: str) -> dict[str, Any]:
    """Save after a step without waiting and train on; then save where nothing can be written."""
    session, trainer = state_trainer(strategy, largest_norm=1.0)
    batches = session.shard(global_batches(0, 4))
    trainer.step(*next(batches))
    trainer.save(directory, wait=False)
    losses = [trainer.step(*batch).loss for batch in batches]
    trainer.save(file, wait=False)
    refusals: list[str | None] = []
    for finish in (trainer.finish_saving, trainer.finish_saving):
        try:
            finish()
            refusals.append(None)
        except InputError as error:
            refusals.append(str(error))
    later, again = state_trainer(strategy, largest_norm=1.0)
    again.load(directory)
    return {
        "step": again.step_count,
        "loss": _next_loss(later, again, 1),
        "wanted": losses[0],
        "refusals": everyone(refusals),
    }


def _next_loss(session: Session, trainer: Trainer, step: int) -> float:
    (batch,) = session.shard(global_batches(0, step + 1))
    return trainer.step(*batch).loss


def _die(*_arguments: Any, **_named: Any) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


def _die_while_writing() -> None:
    def write_half(writer: FileSystemWriter, *arguments: Any) -> NoReturn:
        write(writer, *arguments).wait()
        for path in Path(writer.path).glob("__*.distcp"):
            os.truncate(path, path.stat().st_size // 2)
        _die()

    write = FileSystemWriter.write_data
    FileSystemWriter.write_data = write_half  # type: ignore[method-assign]


def _die_before_the_record() -> None:
    executor.checkpoint.write_record = _die  # type: ignore[attr-defined]


def _die_before_the_record_is_replaced() -> None:
    os.replace = _die


def _die_before_the_last_step_is_removed() -> None:
    executor.checkpoint.remove_others = _die  # type: ignore[attr-defined]


_MOMENTS: dict[str, Callable[[], None]] = {
    "writing": _die_while_writing,
    "written": _die_before_the_record,
    "replacing": _die_before_the_record_is_replaced,
    "removing": _die_before_the_last_step_is_removed,
}
CHECKPOINT_TASKS: tuple[Callable[..., dict[str, Any]], ...] = (
    go_on,
    dying_save,
    refusals,
    unshared_directory,
    several_saves,
    full_disk,
    save_in_background,
    weights_after_load,
)
