"""Session: one rank's view of a plan, from which a training script makes its trainer."""

from __future__ import annotations

import atexit
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.utils.data import Dataset, DistributedSampler

from executor.apply.boundary import StageBoundary
from executor.apply.compiling import chosen_compiler, compiler_differences, compiles
from executor.apply.differences import differences_from_plan, packing_differences
from executor.apply.float8 import Float8, float8_differences
from executor.apply.forward_pass import ForwardPass
from executor.apply.materialise import unsplit_name
from executor.apply.order import Application, apply, residences_of
from executor.apply.schedule import MicroBatchLoss, schedule_of
from executor.apply.supported import check_strategy
from executor.apply.temporaries import optimizer_differences
from executor.apply.tied import second_copies
from executor.apply.virtual_stages import VirtualStage, rank_model
from executor.background_save import end_with_status
from executor.batch import GivenBatch
from executor.buffers import Buffers, check_averaged
from executor.checkpoint import Trained
from executor.cores import keep_apart
from executor.coupling import check_uncoupled
from executor.cuda_defaults import set_cuda_defaults
from executor.data import shard
from executor.environment import COMPILER, RankEnvironment
from executor.errors import LaunchError, ModelMismatchError
from executor.evaluation import Evaluation
from executor.excepthook import speak_once
from executor.export import Exported
from executor.gradients import Gradients
from executor.holdings import held_blocks, placements
from executor.inference import Inference
from executor.launched_rank import LaunchedRank
from executor.losses import LossFunction, takes_sharded_logits
from executor.masking import micro_batch_loss
from executor.mesh import PIPELINE, RankMesh
from executor.models.declared import subject
from executor.models.forward_inputs import LABELS
from executor.models.own import Declaration
from executor.numerics import Numerics
from executor.optimizers import OptimizerFunction
from executor.partial_scalars import read_whole_scalars
from executor.planned import check_planned, check_trainable
from executor.planned_data import PlannedData
from executor.precision import take_product_format
from executor.quantized_values import QuantizedValues
from executor.randomness import Draws
from executor.same_beginning import check_same_beginning
from executor.script_state import ScriptState
from executor.slurm_rank import rank_variables
from executor.state_differences import state_differences
from executor.step_observers import wanted_observers
from executor.trainer import Trainer
from executor.undefined_loss import LossWatch, Reaction
from executor.updates import Residence, StepEnd, updates_of
from executor.weights import LoadedValues, Weights, WeightsLike, check_sample
from planner.executor_fields import executor_differences
from planner.schema.plan import Plan
from planner.schema.run import RankReport
from planner.schema.strategy import Strategy

INITIAL_SEED = 0
# What of a strategy does not say which part of the model a rank holds, or which rows it reads.
_NO_LAYOUT = {"micro_batch_size", "micro_batch_count", "pipeline_schedule"}
_ONE_DEVICE = "Duplicate GPU"  # as NCCL says it


class Session:
    """A plan, this rank's place in its mesh, and what was made of it."""

    def __init__(
        self,
        plan: Plan,
        *,
        device: torch.device,
        mesh: RankMesh | None = None,
        compiler: str | None = None,
        launched: LaunchedRank | None = None,
    ) -> None:
        """Make the session of `plan`; `mesh` is one of another session with the same degrees."""
        check_strategy(plan.strategy, plan.job.resolved)
        read_whole_scalars()
        self.compiler = chosen_compiler(plan.job.resolved, compiler)
        self.plan = plan
        self.device = device
        self.rank = distributed.get_rank()
        self.backend = distributed.get_backend()
        self.mesh = mesh or RankMesh.of(plan.strategy, device.type)
        self._stage = self.mesh.stage
        self.trainer: Trainer | None = None
        self.launched = launched
        self._data = PlannedData(plan=plan, mesh=self.mesh, device=device)
        self._differences: tuple[str, ...] = ()
        self._residences: list[Residence] = []
        self._numerics: Numerics | None = None

    @property
    def strategy(self) -> Strategy:
        """Return the plan's strategy."""
        return self.plan.strategy

    def parallelize(  # noqa: PLR0913 - each says something of a script that nothing else does
        self,
        build_model: Callable[[], nn.Module],
        loss_function: LossFunction,
        optimizer_function: OptimizerFunction,
        *,
        declaration: Declaration | None = None,
        weights: WeightsLike | None = None,
        checkpoint_follows: bool = False,
        seed: int = INITIAL_SEED,
        max_gradient_norm: float | None = None,
        ignored_target: int | None = None,
        target_name: str = LABELS,
        output_dtype: torch.dtype | None = None,
        on_undefined_loss: Reaction = "continue",
        averaged_buffers: Sequence[str] = (),
    ) -> Trainer:
        """Return a trainer of this rank's part of the model that `build_model` builds.

        `build_model` is called on the meta device. First values are read from `weights`: a
        safetensors file, a folder as transformers writes it, a state dict, or a `Weights` that says
        where these and the model differ. Without any they depend on `seed` alone, not on the
        layout. A module of one's own begins as it does after `torch.manual_seed(seed)`;
        without a `declaration` it gets data parallelism and ZeRO alone. Where `checkpoint_follows`
        nothing is read or drawn, and the trainer does nothing before `trainer.load`.
        `loss_function(logits, targets)` must be a mean over tokens, but for those whose target is
        `ignored_target`: then the loss is the mean over all others of the global batch, however
        many of them each rank has. Left out, it is what the loss is found to leave out.
        Batches that are mappings have targets under `target_name`. Modules may `add_loss` to it.
        `optimizer_function(parameters)` may be called more than once, for disjoint parameters. One
        whose argument is called `named_parameters` gets pairs with the unsplit model's names.
        Gradients are clipped to `max_gradient_norm` over the whole model, to 1 where it is left out
        and the job itself says `gradient_clipping: true`. Logits reach the loss in `output_dtype`,
        in fp32 at least if left out. `on_undefined_loss`: what follows a loss that is no number.
        Before each step ranks take persistent buffers from the first data-parallel rank, or the
        mean of those whose names match a pattern of `averaged_buffers`, such as "*.running_mean".

        Raises:
            UnsupportedPlanError: if a degree does not divide what it splits.
            ModelMismatchError: if the model is not the one that was planned.
            WeightsError: if `weights` are not those of the model.
        """
        job = self.plan.job.resolved
        taken = subject(
            build_model,
            own=declaration,
            strategy=self.strategy,
            job=job,
            seed=seed,
            weights=None if weights is None else Weights.of(weights),
            checkpoint_follows=checkpoint_follows,
            device=self.device,
        )
        model, chain = taken.model, taken.declaration
        check_planned(chain, self.plan.model.resolved, is_own=declaration is not None)
        check_trainable(model)
        check_averaged(model, averaged_buffers)
        check_same_beginning(model, taken.values, declaration=chain)
        application = Application(
            strategy=self.strategy,
            precision=job.precision,
            mesh=self.mesh,
            device=self.device,
            values=taken.values,
            sharded_logits=takes_sharded_logits(loss_function),
            is_own=declaration is not None,
            compiler=self.compiler,
            float8=Float8.of(job, self.device),
        )
        products = take_product_format(job, self.device)
        stages = apply(model, declaration=chain, application=application)
        if isinstance(taken.values, LoadedValues | QuantizedValues):
            check_sample(rank_model(stages), taken.values, declaration=chain, device=self.device)
        taken.values.forget()
        self._differences = (
            *products,
            *differences_from_plan(
                stages,
                declaration=chain,
                strategy=self.strategy,
                precision=application.precision,
                mesh=self.mesh,
            ),
            *packing_differences(stages, declaration=chain, job=job),
            *compiler_differences(
                stages, declaration=chain, strategy=self.strategy, compiler=self.compiler
            ),
            *float8_differences(
                stages,
                declaration=chain,
                float8=application.float8,
                is_compiled=compiles(self.compiler, self.strategy, chain),
            ),
        )
        held = rank_model(stages)
        self._residences = residences_of(stages, declaration=chain, strategy=self.strategy)
        self._numerics = numerics = Numerics.of(
            job, max_gradient_norm, output_dtype=output_dtype, ignored_target=ignored_target
        )
        gradients = Gradients(
            held.parameters(),
            counted_elsewhere=second_copies(stages, chain),
            stage_ranks=distributed.get_world_size() // self.mesh.degrees[PIPELINE],
            device=self.device,
            largest_norm=numerics.largest_norm,
            loss_scale=numerics.loss_scale,
        )
        splits = self.strategy.sequence_parallel
        name_of = partial(unsplit_name, declaration=chain)
        updates = updates_of(
            held, self._residences, optimizer_function, device=self.device, name_of=name_of
        )
        check_uncoupled(
            [update.optimizer for update in updates],
            are_several=len(updates) > 1 or self.mesh.degrees[PIPELINE] > 1,
        )
        self.trainer = Trainer(
            Trained(
                model=held,
                updates=updates,
                declaration=chain,
                buffers=Buffers.of(
                    held,
                    chain,
                    self.mesh,
                    splits_sequence=splits,
                    averaged=averaged_buffers,
                ),
                script=ScriptState(
                    self.device, layout=self.strategy.model_dump_json(exclude=_NO_LAYOUT)
                ),
            ),
            mesh=self.mesh,
            schedule=schedule_of(
                self.plan,
                stages,
                declaration=chain,
                mesh=self.mesh,
                device=self.device,
                loss_function=micro_batch_loss(numerics.loss(loss_function)),
            ),
            step_end=StepEnd(updates=updates, gradients=gradients),
            draws=Draws.of(self.mesh, seed=seed, splits_sequence=splits, device=self.device),
            reader=self._data.reader(
                chain,
                loss_function=loss_function,
                target_name=target_name,
                ignored_target=ignored_target,
            ),
            watch=LossWatch(on_undefined_loss),
        )
        for said in self._data.loss_differences(loss_function, self.trainer.reader):
            self._differences += (said,)
            if self.rank == 0:
                warnings.warn(said, stacklevel=2)
        self.trainer.exported = Exported(
            model=held, declaration=chain, mesh=self.mesh, device=self.device, origin=taken.origin
        )
        self.trainer.observers = wanted_observers(
            self.plan, os.environ, rank=self.rank, launched=self.launched
        )
        self.trainer.awaits_checkpoint = checkpoint_follows
        if self.launched is not None:
            self.trainer.termination = self.launched.termination
            self.trainer.step_limit = self.launched.step_limit
        self._give_forward(self.trainer, stages, micro_batch_loss(numerics.loss(loss_function)))
        return self.trainer

    @property
    def data_degree(self) -> int:
        """Return into how many parts a global batch's rows are shared out."""
        return self.mesh.data_degree

    @property
    def data_index(self) -> int:
        """Return which of these parts is this rank's; ranks of one replica have the same."""
        return self.mesh.data_index

    def sampler(
        self, dataset: Dataset[Any], *, shuffle: bool = True, seed: int = INITIAL_SEED
    ) -> DistributedSampler[Any]:
        """Return a sampler of this rank's rows, for a loader that is sharded `per_rank`."""
        return DistributedSampler(
            dataset, self.data_degree, self.data_index, shuffle=shuffle, seed=seed
        )

    def shard(
        self,
        loader: Iterable[GivenBatch],
        *,
        per_rank: bool = False,
        is_positioned: bool = False,
    ) -> Iterator[Any]:
        """Yield this rank's rows of the global batches of `loader`, the same on every rank.

        `per_rank` says that `loader` yields this rank's rows alone, as `session.sampler` picks
        them; ranks with the same `data_index` must read the same.

        Batches are tensors, inputs before targets, or mappings of tensors by name, and are yielded
        as they came. The last one may have fewer rows than the plan's.
        After `trainer.load`, batches that were taken before are passed over: `loader` begins as it
        did in the first run, or is at the right place already if it `is_positioned`. A loader with
        `state_dict` and `load_state_dict` is asked for its place and brought back to it.
        A run that is asked to end (SIGTERM), or that has made the steps that `meshwright run
        --steps` allows, gets no more batches: `trainer.is_stopping` says so.

        Raises:
            ModelMismatchError: if a batch is not the plan's, or nothing was parallelized.
        """
        trainer = self._made_trainer()
        trainer.expect(loader)
        share = self._data.share(trainer.declaration, trainer.reader, per_rank=per_rank)
        rows = shard(loader, share, trainer.position, is_positioned=is_positioned)
        return trainer.until_stopping(rows)

    def report(self) -> RankReport:
        """Return what this rank did and measured so far.

        Raises:
            ModelMismatchError: if no model was parallelized.
        """
        trainer = self._made_trainer()
        return RankReport(
            rank=self.rank,
            stage=self._stage,
            mesh=self.mesh.reported_degrees,
            blocks=held_blocks(trainer.model, trainer.declaration),
            placements=placements(trainer.model),
            parameter_bytes=trainer.parameter_bytes(),
            peak_memory_bytes=trainer.peak_memory_bytes(),
            peak_memory_kind="cuda_allocated" if self.device.type == "cuda" else "live_tensors",
            step_seconds=tuple(metrics.seconds for metrics in trainer.history),
            numerics=None if self._numerics is None else self._numerics.applied(),
            undefined_losses=trainer.watch.found,
            differences_from_plan=(
                *self._differences,
                *state_differences(trainer.model, trainer.updates, self._residences),
                *optimizer_differences(trainer.optimizers, job=self.plan.job.resolved),
                *trainer.averages.differences(),
                *trainer.short_sequences.differences(),
                *filter(None, [trainer.unmetered]),
                *executor_differences(self.plan.job.resolved),
            ),
        )

    def _give_forward(
        self, trainer: Trainer, stages: Sequence[VirtualStage], loss_function: MicroBatchLoss
    ) -> None:
        """Let `trainer` run forward alone."""
        strategy, reader = self.strategy, trainer.reader
        forward = ForwardPass(
            stages,
            strategy=strategy,
            mesh=self.mesh,
            boundary=StageBoundary.of(self.plan, trainer.declaration.shapes.hidden_size),
            device=self.device,
        )
        trainer.forward = Inference(
            forward=forward, reader=reader, mesh=self.mesh, device=self.device
        )
        trainer.evaluation = Evaluation(
            forward=forward,
            loss_function=loss_function,
            reader=reader,
            share=self._data.share(trainer.declaration, reader),
        )

    def _made_trainer(self) -> Trainer:
        if self.trainer is None:
            raise ModelMismatchError(
                "nothing was parallelized",
                field="session",
                remedy="call session.parallelize() first, and train with what it returns",
            )
        return self.trainer


_started: list[Session] = []


def start(compiler: str | None = None) -> Session:
    """Return the session of the plan and rank that the launcher put into the environment.

    Blocks are compiled by `compiler` (inductor, aot_eager, none), or as the environment variable
    `MESHWRIGHT_COMPILER` says; left out, by inductor where the job has `fused_elementwise`.

    Raises:
        LaunchError: outside a launcher, if the ranks are not as many as the plan's, or if this
            machine has not its devices.
        DocumentError: if the plan cannot be read.
        UnsupportedPlanError: if the executor cannot apply the plan.
    """
    speak_once()
    if not _started:
        atexit.register(end_with_status)  # before what else a script has run at its end
    os.environ.update(rank_variables(os.environ))
    environment = RankEnvironment.read(os.environ)
    plan = Plan.read(Path(environment.plan_path))
    environment.check_world(plan.strategy)
    device = environment.device(plan)
    if device.type == "cuda":
        _set_cuda_defaults(environment.rank)
        torch.cuda.set_device(device)
    if not distributed.is_initialized():
        _init_process_group(device, environment)
    _check_backend(device)
    if device.type == "cpu":
        keep_apart()
    environment.timeouts.start()
    asked = compiler or os.environ.get(COMPILER)
    launched = _started[-1].launched if _started else LaunchedRank.of_process(environment)
    speak_once(None if launched is None else launched.ending)
    session = Session(plan, device=device, compiler=asked, launched=launched)
    _started.append(session)
    if session.rank != 0:  # torch warns of a script's own module on every rank alike
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
    return session


def _set_cuda_defaults(rank: int) -> None:
    """Set what a launcher that is not ours has not set, and say what comes too late."""
    is_in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    late = set_cuda_defaults(os.environ, is_in_use=is_in_use)
    if late and rank == 0:
        warnings.warn(
            f"CUDA was in use before meshwright.start(): start ranks with {' '.join(late)}, "
            "without which memory is lost to fragments that the plan does not count",
            stacklevel=3,
        )


def _init_process_group(device: torch.device, environment: RankEnvironment) -> None:
    """Initialise the process group of all ranks.

    Raises:
        LaunchError: if two of them have one device.
    """
    try:
        distributed.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            timeout=timedelta(seconds=environment.timeouts.start_seconds),
            device_id=device if device.type == "cuda" else None,
        )
    except distributed.DistBackendError as error:
        if _ONE_DEVICE not in str(error):
            raise
        raise LaunchError(
            "two ranks of a node have one device",
            field="CUDA_VISIBLE_DEVICES",
            value=os.environ.get("CUDA_VISIBLE_DEVICES"),
            remedy="let each rank see another device, or all of its node's",
        ) from error


def _check_backend(device: torch.device) -> None:
    """Return unless a process group of the script's own moves what is on GPUs otherwise.

    Raises:
        LaunchError: if it has no NCCL.
    """
    backend = distributed.get_backend_config()
    if device.type == "cuda" and "nccl" not in backend:
        raise LaunchError(
            "is the script's own, and what GPU ranks send goes over NCCL",
            field="process group",
            value=backend,
            remedy="leave init_process_group out, or give it backend='cpu:gloo,cuda:nccl'",
        )


def started() -> Session | None:
    """Return the session that this process started last, if any: the launcher reports it."""
    return _started[-1] if _started else None
