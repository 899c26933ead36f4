"""Rank main: what each rank runs: the shipped training, or the user's script.

Run by the launcher as `python -m executor.rank_main [SCRIPT ARGUMENT ...]`.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # while all below is imported, which leaves no garbage

import ctypes
import math
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import torch
from torch import distributed, nn

from executor.data import BYTE_VALUES, corpus_batches
from executor.environment import (
    DEBUG,
    DEFAULT_STEP_COUNT,
    LAUNCHER_PROCESS,
    OUTCOME_DIRECTORY,
    STEP_COUNT,
)
from executor.errors import LaunchError, ModelMismatchError, UnsupportedPlanError
from executor.failure import is_timeout
from executor.gradients import USUAL_NORM
from executor.launched_rank import LaunchedRank
from executor.losses import next_token_loss
from executor.models.decoder import Decoder
from executor.optimizers import OptimizerFunction, adamw
from executor.outcome import RankOutcome, write_outcome
from executor.process_end import end_process
from executor.rank_place import write_place
from executor.refusal import is_lasting
from executor.resumption import Resumption
from executor.session import Session, start, started
from executor.trainer import Trainer
from executor.variables import PROGRESS_SECONDS
from planner.errors import InputError, shorten
from planner.schema.job import Job, Optimizer
from planner.schema.model import ModelGraph

LEARNING_RATE = 3e-3
_PR_SET_PDEATHSIG = 1
_INTERRUPTED = 128 + signal.SIGINT  # as shells have it
_PACKAGE = Path(__file__).resolve().parent


def main(arguments: Sequence[str]) -> int:
    """Run this rank to its end; return its exit status."""
    die_with_launcher()
    directory = Path(os.environ[OUTCOME_DIRECTORY])
    rank = int(os.environ["RANK"])
    try:
        if arguments:
            _run_script(arguments)
        else:
            train_on_corpus()
        outcome = _outcome(rank)
    except SystemExit as stop:
        write_outcome(directory, RankOutcome(rank=rank, error=_of_exit(stop)))
        return stop.code if isinstance(stop.code, int) else 1
    except KeyboardInterrupt:  # of whoever watches the launcher, which says so
        return _INTERRUPTED
    except InputError as error:
        write_outcome(directory, _of_refusal(rank, error))
        return 1
    except Exception as error:  # noqa: BLE001 - whatever a user's script raises is reported
        if os.environ.get(DEBUG, "") not in {"", "0"}:
            traceback.print_exc()
        said = _in_one_line(error) + (place_in(arguments[0], error) if arguments else "")
        _leave_place(directory, rank, error, has_waited=is_timeout(said))
        write_outcome(directory, RankOutcome(rank=rank, error=f"{said}{_behind(said)}"))
        return 1
    write_outcome(directory, outcome)
    return 0


def train_on_corpus() -> None:
    """Train the planned model on the shipped corpus and print the loss as it falls."""
    os.environ[PROGRESS_SECONDS] = "0"  # it prints each step
    session = start()
    graph, job = session.plan.model.resolved, session.plan.job.resolved
    _check_vocabulary(graph)
    resumption = Resumption.read(os.environ)
    trainer = session.parallelize(
        lambda: Decoder(graph),
        next_token_loss,
        _optimizer_function(job),
        checkpoint_follows=resumption.follows(),
        max_gradient_norm=USUAL_NORM if job.prices_clipping else None,
    )
    step_count = int(os.environ.get(STEP_COUNT, DEFAULT_STEP_COUNT))
    batches = session.shard(
        corpus_batches(
            global_batch_size=job.global_batch_size or 1, sequence_length=job.sequence_length or 1
        )
    )
    if resumption.resume(trainer):
        _print_resumed(trainer.step_count)
    first_step = trainer.step_count
    for index, (inputs, targets) in enumerate(
        islice(batches, max(0, step_count - first_step)), first_step
    ):
        metrics = trainer.step(inputs, targets)
        _print_progress(index, step_count, metrics.loss, metrics.seconds)
        resumption.after_step(trainer, is_last=trainer.is_stopping or index + 1 == step_count)


def die_with_launcher() -> None:
    """Ask the kernel to kill this process when the launcher dies: no rank outlives its run.

    Raises:
        LaunchError: if the launcher is dead already.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    launcher = os.environ.get(LAUNCHER_PROCESS)
    if launcher is not None and int(launcher) != os.getppid():
        raise LaunchError(
            "the launcher is gone",
            field=LAUNCHER_PROCESS,
            value=launcher,
            remedy="launch the plan again",
        )


def _run_script(arguments: Sequence[str]) -> None:
    sys.argv = list(arguments)
    sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as stop:
        if stop.code not in {None, 0}:
            raise


def _outcome(rank: int) -> RankOutcome:
    session = started()
    if session is None:
        raise LaunchError(
            "ended without meshwright.start()",
            field="script",
            value=sys.argv[0],
            remedy="call meshwright.start() and train with session.parallelize()",
        )
    losses = _losses(session)
    # A script may have ended its process group, as scripts do.
    is_connected = distributed.is_initialized()
    if is_connected and session.launched is not None:
        session.launched.ending.wait(session.launched.timeouts.step_seconds)
    is_stopping = session.trainer is not None and session.trainer.is_stopping
    if session.trainer is not None:
        session.trainer.finish_saving()
        if is_stopping:
            _say_stopped(session.trainer)
    if is_connected and session.trainer is not None and not is_stopping:
        session.trainer.meter_last()
    outcome = RankOutcome(
        rank=rank,
        report=session.report(),
        losses=losses,
        backend=session.backend,
        torch_version=str(torch.__version__),
        is_stopped=is_stopping,
    )
    if distributed.is_initialized():
        distributed.barrier()
    return outcome


def _losses(session: Session) -> tuple[float | None, ...]:
    """Return the loss of every step, none where it is no finite number: JSON has no other word."""
    history = session.trainer.history if session.trainer is not None else ()
    return tuple(item.loss if math.isfinite(item.loss) else None for item in history)


def _optimizer_function(job: Job) -> OptimizerFunction:
    if job.optimizer is Optimizer.ADAMW:
        return partial(adamw, learning_rate=LEARNING_RATE, foreach=job.foreach_optimizer)
    if job.optimizer is Optimizer.SGD:
        return sgd
    raise UnsupportedPlanError(
        "the shipped training has no such optimizer",
        field="job.optimizer",
        value=job.optimizer.value,
        remedy="plan for adamw or sgd, or pass your own optimizer in a script",
    )


def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Return SGD with momentum as the shipped training uses it."""
    return torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=0.9)


def _check_vocabulary(graph: ModelGraph) -> None:
    if graph.vocabulary_size < BYTE_VALUES:
        raise ModelMismatchError(
            f"the shipped corpus has one token a byte, {BYTE_VALUES} in all",
            field="model.vocabulary_size",
            value=graph.vocabulary_size,
            remedy=f"plan a model with at least {BYTE_VALUES}, or train with a script",
        )


def _print_progress(index: int, step_count: int, loss: float, seconds: float) -> None:
    if distributed.get_rank() == 0:
        line = f"step {index + 1:>3}/{step_count}  loss {loss:.4f}  {seconds * 1e3:.1f} ms"
        print(line, flush=True)  # noqa: T201 - the progress that a person watches


def _say_stopped(trainer: Trainer) -> None:
    """Say what a run that was asked to end leaves to go on from."""
    if distributed.is_initialized() and distributed.get_rank() == 0:
        saved = f"the last checkpoint is of step {trainer.saved_step}"
        if trainer.saved_step is None:
            saved = "it has saved no checkpoint"
        step = trainer.step_count
        print(f"asked to end: stopped after step {step}, {saved}", flush=True)  # noqa: T201


def _print_resumed(step: int) -> None:
    if distributed.get_rank() == 0:
        print(f"resumed from the checkpoint of step {step}", flush=True)  # noqa: T201 - progress


def place_in(script: str, error: Exception) -> str:
    """Return at which line the script, or a module beside it, was when `error` was raised."""
    folder = Path(script).resolve().parent
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename).resolve()
        is_installed = file.is_relative_to(_PACKAGE) or "site-packages" in file.parts
        if file.is_relative_to(folder) and not is_installed:
            return f" ({file.relative_to(folder)}, line {frame.lineno})"
    return ""


def _leave_place(directory: Path, rank: int, error: Exception, *, has_waited: bool) -> None:
    """Leave word of where this rank was when `error` was raised, and if it waited in vain."""
    launched = _launched()
    begun = 0 if launched is None else launched.ending.begun_steps
    frames = traceback.extract_tb(error.__traceback__)
    write_place(directory, frames, rank=rank, begun_steps=begun, has_waited=has_waited)


def _behind(said: str) -> str:
    """Return, of an error of waiting in vain, which ranks have begun fewer steps than this one."""
    launched = _launched()
    if launched is None or not is_timeout(said):
        return ""
    words = launched.ending.behind_words()
    return f"; {words}" if words else ""


def _launched() -> LaunchedRank | None:
    session = started()
    return None if session is None else session.launched


def _of_refusal(rank: int, error: InputError) -> RankOutcome:
    """Return a refusal, which lasts if it is of what the launch was given, and no step has begun.

    What goes wrong after steps may be of the data there, or of another rank.
    """
    launched = _launched()
    has_begun = launched is not None and launched.ending.begun_steps > 0
    return RankOutcome(
        rank=rank,
        error=str(error),
        is_refusal=True,
        is_lasting=is_lasting(error) and not has_begun,
    )


def _of_exit(stop: SystemExit) -> str:
    is_status = isinstance(stop.code, int)
    return f"the script ended with exit status {stop.code}" if is_status else str(stop.code)


def _in_one_line(error: Exception) -> str:
    text = str(error).strip() or "no message"
    kind = type(error).__name__
    return shorten(text) if len(text) <= 1 else f"{kind}: {' '.join(text.split())[:600]}"


if __name__ == "__main__":
    gc.freeze()
    gc.enable()
    end_process(
        main(sys.argv[1:]),
        directory=Path(os.environ[OUTCOME_DIRECTORY]),
        rank=int(os.environ["RANK"]),
    )
