"""Lightning: the arguments of its Trainer that a plan is, with a strategy that applies it.

    trainer = L.Trainer(max_steps=100, **planned_trainer("plan.json"))
    trainer.fit(module, loader)

The strategy is Lightning's own: `DDPStrategy`, or `ModelParallelStrategy` with torch's
`fully_shard` on the plan's blocks. Each loader yields micro-batches of the plan.
"""

# ruff: noqa: E402 - what is not installed is named before anything imports it

from __future__ import annotations

from planner.extras import check_extras

check_extras(__name__, __name__)

from pathlib import Path
from typing import Any

from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from lightning.pytorch.utilities.model_helpers import is_overridden

from executor.apply.foreign_model import (
    blocks_path,
    check_tensor_parallel,
    checkpoint_blocks,
    shard_blocks,
    sharding_mesh,
)
from meshwright.integrations.foreign_run import (
    ForeignRun,
    check_adapters,
    check_length,
    check_ranks,
    check_same,
    read_plan,
    row_counts,
    say,
)
from planner.errors import InputError
from planner.exporters.draft import Draft
from planner.exporters.fully_sharded import is_sharded
from planner.exporters.lightning_settled import settled_for_lightning
from planner.exporters.placement import placement
from planner.schema.job import Precision
from planner.schema.plan import Plan

_PRECISION = {
    Precision.FP32: "32-true",
    Precision.BF16: "bf16-mixed",
    Precision.FP16: "16-mixed",
}


def planned_trainer(plan: Plan | str | Path) -> dict[str, Any]:
    """Return the keyword arguments of Lightning's `Trainer` that the plan is.

    Raises:
        InputError: if Lightning cannot run the plan, as one with pipeline stages.
    """
    draft = settled_for_lightning(read_plan(plan), "lightning")
    place = placement(draft.plan)
    kind = PlannedSharding if is_sharded(draft) else PlannedReplicas
    return {
        "strategy": kind(draft),
        "num_nodes": place.node_count,
        "devices": place.devices_per_node,
        "accumulate_grad_batches": draft.strategy.micro_batch_count,
        "precision": _precision(draft),
    }


def _precision(draft: Draft) -> str:
    """Return Lightning's precision; where parameters are sharded, `fully_shard` has the plan's."""
    return "32-true" if is_sharded(draft) else _PRECISION[draft.plan.job.resolved.precision]


class _Planned:
    """What both strategies do beside Lightning's own: check, and time steps."""

    run: ForeignRun
    is_global_zero: bool
    is_in_step = False

    def check(self, trainer: Any) -> None:
        """Return if the trainer is as planned.

        Raises:
            InputError: naming the first setting that is another.
        """
        draft = self.run.draft
        check_ranks(trainer.world_size, draft.plan)
        count = draft.strategy.micro_batch_count
        check_same("accumulate_grad_batches", found=trainer.accumulate_grad_batches, planned=count)
        check_same("precision", found=trainer.precision, planned=_precision(draft))
        check_adapters(self.lightning_module, draft)  # type: ignore[attr-defined]

    def on_train_start(self) -> None:
        """Say what is not as planned."""
        if self.is_global_zero:
            for line in self.run.first_lines():
                say(line)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Note that a step of the optimizer begins, with its first micro-batch."""
        check_length(batch, self.run.draft)
        if batch_idx == 0:
            planned = self.run.draft.strategy.micro_batch_size
            for size in row_counts(batch):
                check_same("micro-batch size", found=size, planned=planned)
        if not self.is_in_step:
            self.is_in_step = True
            self.run.clock.begin()

    def optimizer_step(self, *arguments: Any, **named: Any) -> Any:
        """Note that it has ended."""
        result = super().optimizer_step(*arguments, **named)  # type: ignore[misc]
        self.is_in_step = False
        self.run.clock.end()
        return result

    def on_train_end(self) -> None:
        """Say how long steps took, beside the plan."""
        if self.is_global_zero:
            say(self.run.last_line())


class PlannedReplicas(_Planned, DDPStrategy):  # type: ignore[misc]  # it may be absent
    """Replicas of the whole module, as Lightning has them."""

    def __init__(self, draft: Draft) -> None:
        super().__init__()
        self.run = ForeignRun(draft)

    def setup(self, trainer: Any) -> None:
        """Check the trainer, and checkpoint the plan's blocks."""
        self.check(trainer)
        module = self.lightning_module
        path = blocks_path(module, self.run.plan.model.resolved.block_count)
        checkpoint_blocks(module, path, self.run.draft.strategy)
        super().setup(trainer)


class PlannedSharding(_Planned, ModelParallelStrategy):  # type: ignore[misc]  # as above
    """Shards of the child of the module that has the plan's blocks.

    Tensor parallelism is the module's own, applied in `configure_model` over
    `self.device_mesh["tensor_parallel"]`, as Lightning has it.
    """

    def __init__(self, draft: Draft) -> None:
        tensor = draft.strategy.tensor_parallel_degree
        data = draft.strategy.world_size // tensor
        super().__init__(data_parallel_size=data, tensor_parallel_size=tensor)
        self.run = ForeignRun(draft)

    def setup(self, trainer: Any) -> None:
        """Check the trainer, and apply the plan to the module before optimizers are made."""
        self.check(trainer)
        strategy, module = self.run.draft.strategy, self.lightning_module
        child, path = _planned_child(module, self.run.plan.model.resolved.block_count)
        checkpoint_blocks(child, path, strategy)
        if strategy.tensor_parallel_degree == 1:
            mesh = sharding_mesh(strategy, self.root_device)
        else:
            check_tensor_parallel(child, strategy)
            mesh = self.device_mesh["data_parallel"]
        shard_blocks(
            child, path, strategy, precision=self.run.plan.job.resolved.precision, mesh=mesh
        )
        if not is_overridden("configure_model", module):
            module.configure_model = _nothing  # the strategy wants one, and has applied the plan
        super().setup(trainer)


def _planned_child(module: Any, block_count: int) -> tuple[Any, str]:
    """Return the child with the plan's blocks, whose forward gathers shards, and their path in it.

    Raises:
        InputError: if parameters outside of it are trained, which nothing would average.
    """
    name, _, path = blocks_path(module, block_count).partition(".")
    outside = [
        key
        for key, item in module.named_parameters()
        if item.requires_grad and not key.startswith(f"{name}.")
    ]
    if outside or not path:
        raise InputError(
            f"has parameters outside of {name}, which holds the planned blocks",
            field="LightningModule",
            value=outside[0] if outside else name,
            remedy="make one module of all that is trained, and call it in training_step",
        )
    return module.get_submodule(name), path


def _nothing() -> None:
    """Leave the module as it is."""
