"""Trainer: steps, checkpoints and measurements of one model on one rank."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel

from executor.added_loss import added_losses
from executor.apply.forward_pass import forward_only
from executor.apply.schedule import Schedule
from executor.apply.written_parameters import WrittenParameters
from executor.averages import Averages
from executor.background_save import BackgroundSaves, on_host
from executor.batch import GivenBatch
from executor.batch_reader import BatchReader
from executor.buffers import Buffers
from executor.checkpoint import Progress, Snapshot, Trained, load_checkpoint, save_checkpoint
from executor.checkpoint_record import Retention
from executor.data import check_same_rows
from executor.data_position import DataPosition
from executor.errors import ModelMismatchError
from executor.evaluation import Evaluation
from executor.export import MAX_FILE_BYTES, Exported, export_adapters, export_weights
from executor.gradients import LossScale, Treated
from executor.inference import Inference
from executor.local_tensor import local_tensor
from executor.mesh import PIPELINE, RankMesh
from executor.progress_line import ProgressLine
from executor.randomness import Draws
from executor.schedulers import SchedulerFunction, Schedulers
from executor.short_sequences import ShortSequences
from executor.step_rows import StepObserver, StepRows
from executor.telemetry import MemoryMeter
from executor.termination import Termination
from executor.undefined_loss import LossWatch
from executor.updates import StepEnd, Update, state_tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMetrics:
    """One step: the global batch's mean loss, this rank's seconds and its peak bytes if metered.

    `between_seconds` have passed since the step before, in the script and its loader.
    `gradient_norm` is that of the whole model before clipping, `None` where nothing needs it.
    The global batch had `token_share` of the plan's tokens.
    `was_skipped` says that nothing was updated: gradients overflowed, or the loss was no number.
    """

    loss: float
    seconds: float
    peak_memory_bytes: int | None
    between_seconds: float = 0.0
    gradient_norm: float | None = None
    was_skipped: bool = False
    token_share: float = 1.0


class Trainer:
    """One rank's part of a planned training run."""

    def __init__(  # noqa: PLR0913 - a step has as many parts
        self,
        trained: Trained,
        *,
        mesh: RankMesh,
        schedule: Schedule,
        step_end: StepEnd,
        reader: BatchReader,
        draws: Draws,
        watch: LossWatch,
    ) -> None:
        self.model = trained.model
        self.declaration = trained.declaration
        self.history: list[StepMetrics] = []
        self.step_count = 0
        self.position = DataPosition()
        self._mesh = mesh
        self._device = draws.device
        self._schedule = schedule
        self._step_end = step_end
        self.reader = reader
        self.short_sequences = ShortSequences(reader.planned.sequence_length)
        self.watch = watch
        self._draws = draws
        self._trained = trained
        self._optimized = {item for item in self.model.parameters() if item.requires_grad}
        self._meter = MemoryMeter(draws.device)
        self._metered_peak_bytes: int | None = None
        self.unmetered: str | None = None
        self._last_batch: GivenBatch | None = None
        self._ended_at: float | None = None
        self.observers: tuple[StepObserver, ...] = ()
        self.evaluation: Evaluation | None = None
        self.forward: Inference | None = None
        self.exported: Exported | None = None
        self.termination: Termination | None = None
        self.step_limit: int | None = None
        self.is_stopping = False
        self.saved_step: int | None = None
        self.awaits_checkpoint = False
        self._background_saves = BackgroundSaves()

    @property
    def optimizers(self) -> tuple[torch.optim.Optimizer, ...]:
        """Return what `optimizer_function` made, for schedulers of learning rates."""
        return tuple(update.optimizer for update in self.updates)

    @property
    def buffers(self) -> Buffers:
        """Return the persistent buffers of the model."""
        return self._trained.buffers

    @property
    def averages(self) -> Averages:
        """Return the moving average of the weights, empty unless the script asks for it."""
        return self._trained.averages

    @property
    def loss_scale(self) -> LossScale | None:
        """Return the scale of an fp16 loss, `None` in other formats."""
        return self._step_end.gradients.loss_scale

    @property
    def updates(self) -> tuple[Update, ...]:
        """Return the optimizers beside the states that they keep."""
        return self._step_end.updates

    def step(self, *batch: torch.Tensor | Mapping[str, torch.Tensor]) -> StepMetrics:
        """Train on this rank's rows of one global batch: all micro-batches, then the optimizer.

        `batch` is what `session.shard` yields: inputs and targets, or a mapping of both. The last
        of a loader may have fewer rows than others.

        Raises:
            ModelMismatchError: if it is not what a rank takes of a planned batch.
        """
        given = _as_given(batch)
        metrics = self._timed_step(given, nullcontext())
        self.position.close()
        self.history.append(metrics)
        self.is_stopping = self.is_stopping or len(self.history) == self.step_limit
        self._last_batch = given
        return metrics

    def metered_step(self, *batch: torch.Tensor | Mapping[str, torch.Tensor]) -> StepMetrics:
        """Train one step as `step` does, metering live tensors where the device cannot.

        It is slower, and so its seconds stay out of `history`.
        """
        metering = self._meter.live_tensors(self._held_tensors())
        metrics = self._timed_step(_as_given(batch), metering)
        self._metered_peak_bytes = metrics.peak_memory_bytes
        return metrics

    def meter_last(self) -> None:
        """Train once more on the last step's batch to meter it, where no step has been metered.

        It is for the end of a run, when nobody needs the parameters any more. All ranks must call
        it. What the script's own code raises then, as of a file that it has closed, ends the
        process group, so that no rank waits, and not the run.
        """
        last = self._last_batch
        if last is not None and self.peak_memory_bytes() is None:
            # It is no step of the run, but a row says what it measured.
            self.observers = tuple(item for item in self.observers if isinstance(item, StepRows))
            try:
                self.metered_step(*((last,) if isinstance(last, Mapping) else last))
            except Exception as error:  # noqa: BLE001 - the training is over, and went well
                reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
                self.unmetered = (
                    f"memory was not metered: one step more, after the script's end, gave {reason}"
                )
                distributed.destroy_process_group()

    def evaluate(self, loader: Iterable[GivenBatch]) -> float:
        """Return the mean loss over all targets of `loader`, without training on it.

        Like `session.shard` it takes global batches, the same on every rank, of which any may have
        fewer rows than the plan's; the place in the data stays where it is. All ranks must call it.

        Raises:
            ModelMismatchError: if a batch is not what the model takes, or there is none.
        """
        self._check_loaded("trainer.evaluate")
        assert self.evaluation is not None  # noqa: S101 - the session gives it
        with forward_only(self.model), loss_parallel():
            scale = self._step_end.scale
            return self.evaluation.mean_loss(loader, lambda loss: self._global_loss(loss) / scale)

    @contextmanager
    def inference(self) -> Iterator[Inference]:
        """Let the model run forward alone: what is yielded puts out logits of inputs.

        All ranks call it with the same inputs, whole sequences of any number and length, and get
        the same outputs.
        """
        self._check_loaded("trainer.inference")
        assert self.forward is not None  # noqa: S101 - the session gives it
        with forward_only(self.model):
            yield self.forward

    def generate(self, prompts: torch.Tensor, *, new_tokens: int, **options: Any) -> torch.Tensor:
        """Return `prompts` [B, S] with tokens behind them, as `Inference.generate` draws them."""
        with self.inference() as model:
            return model.generate(prompts, new_tokens=new_tokens, **options)

    def expect(self, loader: Iterable[GivenBatch]) -> None:
        """Note how many global batches a loader yields in all, if it says so."""
        length = _length(loader)
        for observer in self.observers:
            if isinstance(observer, ProgressLine) and length is not None:
                left = max(0, length - self.position.to_skip)
                if self.step_limit is not None:
                    left = min(left, self.step_limit - len(self.history))
                observer.last_step = self.step_count + left

    def until_stopping(self, rows: Iterator[Any]) -> Iterator[Any]:
        """Yield `rows`, no more of them once ranks have agreed to end."""
        while not self.is_stopping:
            row = next(rows, None)
            if row is None:
                return
            yield row

    def parameter_bytes(self) -> int:
        """Return the bytes of the parameter shards that this rank holds."""
        locals_ = (local_tensor(parameter) for parameter in self.model.parameters())
        return sum(local.numel() * local.element_size() for local in locals_)

    def peak_memory_bytes(self) -> int | None:
        """Return the largest peak of any step, `None` where none was metered."""
        peaks = [metrics.peak_memory_bytes for metrics in self.history]
        known = [peak for peak in (*peaks, self._metered_peak_bytes) if peak is not None]
        return max(known, default=None)

    def save(
        self,
        directory: str | Path,
        *,
        extra: Mapping[str, Any] | None = None,
        keep: int = 1,
        keep_every: int | None = None,
        wait: bool = True,
    ) -> None:
        """Write the run so that any layout can go on from here. All ranks must call it.

        Beside model and optimizer it holds the step, the place in the data, and `extra`: numbers,
        text, lists and mappings of these. A run that dies meanwhile leaves what was saved before.
        The last `keep` checkpoints stay, and those of steps that `keep_every` divides. Unless told
        to `wait` it copies what it saves to the host and writes it while the run goes on; what then
        goes wrong is raised by the next call, or by `finish_saving`.

        Raises:
            CheckpointError: if it, or the one before, cannot be written, or another run saves
                there.
        """
        self._check_loaded("trainer.save")
        self.averages.check_not_applied("trainer.save")
        retention = Retention(last=keep, every=keep_every)
        self.finish_saving()
        position, scale = self.position, self.loss_scale
        progress = Progress(
            step=self.step_count,
            batches=position.closed_count,
            batch_size=self.reader.planned.sequence_count * self._mesh.data_degree,
            loss_scale=None if scale is None else scale.value,
            good_steps=0 if scale is None else scale.good_steps,
            loader_state=position.state(),
            passed=position.passed(),
            extra=extra or {},
        )
        snapshot = Snapshot.of(self._trained, progress)
        self.saved_step = self.step_count
        if wait:
            save_checkpoint(Path(directory), snapshot, retention)
            return
        copied = replace(snapshot, tensors=on_host(snapshot.tensors))
        self._background_saves.start(
            lambda group: save_checkpoint(Path(directory), copied, retention, group=group)
        )

    def finish_saving(self) -> None:
        """Return once a save that goes on is written. All ranks must call it.

        Raises:
            CheckpointError: if it cannot be written.
        """
        self._background_saves.finish()

    def load(self, directory: str | Path, *, step: int | None = None) -> Progress:
        """Read what any layout of this model has saved. All ranks must call it.

        It is the newest checkpoint in `directory`, or that of `step` where more are kept.

        `session.shard` then passes over the batches that were taken before. Returns how far the run
        had come, and its `extra`.

        Raises:
            CheckpointError: if `directory` holds no complete checkpoint of this model.
        """
        self.averages.check_not_applied("trainer.load")
        self.finish_saving()
        progress = load_checkpoint(Path(directory), self._trained, step=step)
        self.awaits_checkpoint = False
        self.step_count = progress.step
        self.position.resume(
            taken=progress.batches,
            loader_state=progress.loader_state,
            batch_size=progress.batch_size,
            passed=progress.passed,
        )
        if self.loss_scale is not None and progress.loss_scale is not None:
            self.loss_scale.value = progress.loss_scale
            self.loss_scale.good_steps = progress.good_steps
        return progress

    def export(
        self,
        directory: str | Path,
        *,
        dtype: torch.dtype = torch.float32,
        max_file_bytes: int = MAX_FILE_BYTES,
        merged: bool = False,
    ) -> None:
        """Write the model as one folder that transformers reads. All ranks must call it.

        It holds safetensors of `dtype` in files of at most `max_file_bytes`, the configuration of a
        model of transformers, and the tokenizer of the folder that the weights came from. Of a
        model with adapters it is PEFT's folder of these, and the whole where they are `merged`.

        Raises:
            WeightsError: if it cannot be written.
        """
        self._check_loaded("trainer.export")
        assert self.exported is not None  # noqa: S101 - the session has set it
        adapters = self.exported.origin.adapters
        if adapters is not None and not merged:
            export_adapters(Path(directory), self.exported, adapters, dtype=dtype)
            return
        export_weights(Path(directory), self.exported, dtype=dtype, max_file_bytes=max_file_bytes)

    def keep(self, **objects: Any) -> None:
        """Have checkpoints hold the state of `objects`, by name, and `load` bring it back.

        They have `state_dict` and `load_state_dict`, as schedulers have, and the same state on all
        ranks. What is kept after `load` takes over what was saved under its name, if anything was.

        Raises:
            ModelMismatchError: if one has not both, or its name is taken.
        """
        self._trained.script.keep(objects)

    def average_weights(self, decay: float) -> Averages:
        """Return a moving average of the weights, which each step updates from now on.

        It is `decay` times the average and the rest of the new weights, as torch's `AveragedModel`
        with `get_ema_multi_avg_fn` has it. Checkpoints hold it. `with averages.applied():` lets the
        model have it for its weights, for `evaluate`, `generate`, `inference` and `export`.
        It takes the memory of the rank's parameters once more, which the plan does not count.

        Raises:
            ModelMismatchError: if `decay` is none, or there is an average already.
        """
        self.averages.begin(self.model, self._trained.parameters(), decay=decay)
        return self.averages

    def schedulers(self, function: SchedulerFunction) -> Schedulers:
        """Return a scheduler of learning rates that `function(optimizer)` makes for each optimizer.

        They step as one, and checkpoints hold their state.
        """
        made = Schedulers(self.optimizers, function)
        self.keep(schedulers=made)
        return made

    def _check_loaded(self, what: str) -> None:
        if self.awaits_checkpoint:
            raise ModelMismatchError(
                "needs values, and the checkpoint that was to bring them was not loaded",
                field=what,
                value="parallelize(..., checkpoint_follows=True)",
                remedy="call trainer.load(directory) first, or leave checkpoint_follows out",
            )

    def _timed_step(self, given: GivenBatch, metering: AbstractContextManager[None]) -> StepMetrics:
        self._check_loaded("trainer.step")
        self.averages.check_not_applied("trainer.step")
        for observer in self.observers:
            observer.step_begins()
        if not self.history:
            self.position.check_alike()
            check_same_rows(given, self._mesh.data_index)
        self._meter.start()
        start = time.perf_counter()
        between = 0.0 if self._ended_at is None else start - self._ended_at
        with metering:
            for parameter in self.model.parameters():
                parameter.grad = None
            self._check_trained()
            micro_batches = self.reader.micro_batches(given, may_be_short=self.step_count > 0)
            self.short_sequences.note(
                micro_batches.length_share, is_told=distributed.get_rank() == 0
            )
            self.buffers.agree()
            factor = self._step_end.scale / len(micro_batches.items)
            with (
                self._draws.of_step(self.step_count),
                loss_parallel(),
                added_losses(factor) as added,
                self._writes_refused(),
            ):
                loss = self._schedule.run(micro_batches.items)
            treated, mean_loss = self._update(added.beside(loss))
            if treated.are_usable:
                self.averages.update()
        self.step_count += 1
        metrics = StepMetrics(
            loss=mean_loss,
            seconds=time.perf_counter() - start,
            peak_memory_bytes=self._meter.peak_bytes(),
            between_seconds=between,
            gradient_norm=None if treated.norm is None else float(treated.norm),
            was_skipped=not treated.are_usable,
            token_share=micro_batches.token_share,
        )
        for observer in self.observers:
            observer.step_ended(self.step_count, metrics)
        self._ended_at = time.perf_counter()
        return metrics

    def _check_trained(self) -> None:
        """Return unless a parameter is to be trained by now that no optimizer was given."""
        for name, parameter in self._trained.parameters():
            if parameter.requires_grad and parameter not in self._optimized:
                raise ModelMismatchError(
                    "was frozen when optimizers were made, and would get gradients for nothing",
                    field="requires_grad",
                    value=name,
                    remedy="build the model with requires_grad of all that is ever trained, and "
                    "freeze after parallelize() what is not yet: it is passed over",
                )

    def _writes_refused(self) -> AbstractContextManager[Any]:
        """Refuse, in the first step of this process, what a forward writes to copies."""
        if self.history or not WrittenParameters.are_copies(self.model):
            return nullcontext()
        return WrittenParameters(self.model)

    def _update(self, loss: torch.Tensor | None) -> tuple[Treated, float]:
        """Update the parameters if gradients and loss serve; return what became of both."""
        step, scale = self.step_count + 1, self._step_end.scale
        if self.watch.comes_first:
            mean_loss = self._global_loss(loss) / scale
            is_usable = self.watch.is_usable(mean_loss, loss, step=step)
            return self._step_end.run() if is_usable else Treated(are_usable=False), mean_loss
        total = self._loss_asked(loss)  # on its way while parameters are updated
        treated = self._step_end.run()
        mean_loss = total() / scale
        self.watch.is_usable(mean_loss, loss, step=step)
        return treated, mean_loss

    def _global_loss(self, loss: torch.Tensor | None) -> float:
        """Return the mean over all ranks that computed a loss; it also waits for the device."""
        return self._loss_asked(loss)()

    def _loss_asked(self, loss: torch.Tensor | None) -> Callable[[], float]:
        """Begin to add up the loss of all ranks; what is returned waits for their mean.

        With it ranks agree whether one of them was asked to end.
        """
        if isinstance(loss, DTensor):
            loss = loss.full_tensor()
        is_asked = self.termination is not None and self.termination.is_asked
        totals = torch.zeros(2, dtype=torch.float64, device=self._device)
        totals[1] = float(is_asked)
        if loss is not None:
            totals[0] = loss
        work = distributed.all_reduce(totals, async_op=True)
        assert work is not None  # noqa: S101 - always given when asynchronous
        ranks = distributed.get_world_size() // self._mesh.degrees[PIPELINE]

        def mean() -> float:
            work.wait()
            total, asked_count = totals.tolist()
            self.is_stopping = self.is_stopping or asked_count > 0
            return float(total) / ranks

        return mean

    def _held_tensors(self) -> Iterable[torch.Tensor]:
        yield from self.model.parameters()
        yield from self.model.buffers()
        for optimizer in self.optimizers:
            yield from state_tensors(optimizer)
        for _, average in self.averages.named():
            yield average


def _length(loader: Iterable[GivenBatch]) -> int | None:
    """Return how many batches a loader says that it has; torch's has no length of a stream."""
    if not isinstance(loader, Sized):
        return None
    try:
        return len(loader)
    except TypeError:
        return None


def _as_given(batch: Sequence[torch.Tensor | Mapping[str, Any]]) -> Any:
    """Return a mapping that stands alone, else tensors in their order."""
    return batch[0] if len(batch) == 1 else batch
