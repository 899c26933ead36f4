"""Accelerate: the accelerator of a script's own loop, as a plan has it.

    accelerator = PlannedAccelerator("plan.json")
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

It is Accelerate's own, which drives DDP or torch's `fully_shard`; the loop stays as it is. Loaders
that are prepared yield micro-batches of the plan. A run that is not the plan's ends before its
first update.
"""

# ruff: noqa: E402 - what is not installed is named before anything imports it

from __future__ import annotations

from planner.extras import check_extras

check_extras(__name__, __name__)

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.parallelism_config import ParallelismConfig
from accelerate.state import PartialState
from accelerate.utils import (
    DistributedType,
    FullyShardedDataParallelPlugin,
    GradientAccumulationPlugin,
    InitProcessGroupKwargs,
)

from executor.apply.foreign_model import (
    blocks_path,
    checkpoint_blocks,
    modules_of,
    records_gradients,
)
from meshwright.integrations.cpu_ranks import let_cpu_ranks_shard
from meshwright.integrations.foreign_run import (
    ForeignRun,
    check_adapters,
    check_length,
    check_model,
    check_placement,
    check_ranks,
    check_same,
    read_plan,
    row_counts,
    say,
    unplanned_adapters,
)
from planner.errors import InputError
from planner.exporters.accelerate import MIXED_PRECISION
from planner.exporters.canonical import layer_groups
from planner.exporters.draft import Draft, offloads, refusal, zero_stages
from planner.exporters.fully_sharded import is_sharded, settled_fully_sharded
from planner.schema.plan import Plan
from planner.schema.strategy import ActivationCheckpointing, Offload

_PLANNED = (
    "mixed_precision",
    "gradient_accumulation_steps",
    "gradient_accumulation_plugin",
    "parallelism_config",
    "fsdp_plugin",
    "deepspeed_plugin",
    "deepspeed_plugins",
    "megatron_lm_plugin",
    "torch_tp_plugin",
)
_ENGINES = {DistributedType.FSDP, DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM}


class PlannedAccelerator(Accelerator):  # type: ignore[misc]  # it may be absent
    """Accelerate's accelerator with the plan's parallelism, memory, precision and batch."""

    def __init__(self, plan: Plan | str | Path, **own: Any) -> None:
        """Take the plan, and what else `Accelerator` takes.

        Raises:
            InputError: if Accelerate cannot run the plan, `own` says what the plan does, or ranks
                or devices are not the plan's.
        """
        for name in _PLANNED:
            if name in own:
                raise InputError(
                    "is the plan's to say",
                    field=name,
                    value=own[name],
                    remedy=f"leave {name} out, or plan for it",
                )
        draft = _draft(read_plan(plan))
        self.run = ForeignRun(draft)
        self._is_in_step = self._has_accumulated = self._has_met_rows = False
        self._unchecked: tuple[Any, Any] | None = None
        if not PartialState._shared_state:  # noqa: SLF001 - the accelerator's own would be the first
            PartialState(own.get("cpu", False), **_group_arguments(own))
        let_cpu_ranks_shard(draft)
        super().__init__(**own, **_arguments(draft))
        check_ranks(self.num_processes, draft.plan)
        _check_engine(self.distributed_type, draft)
        self._say_of_rank_0(*self.run.first_lines())

    def prepare(self, *objects: Any, **named: Any) -> Any:
        """Prepare objects as Accelerate does, with the plan's blocks as what is sharded.

        Raises:
            InputError: if a model is not the plan's.
        """
        for model in modules_of(objects):
            self._prepare_blocks(model)
        prepared = super().prepare(*objects, **named)
        made = prepared if isinstance(prepared, tuple | list) else (prepared,)
        for model in modules_of(made):
            check_placement(model, self.run.draft, remedy="prepare it with its optimizer")
            model.register_forward_pre_hook(self._meet_rows, with_kwargs=True)
        for item in made:
            if isinstance(item, AcceleratedOptimizer):
                item.optimizer.register_step_post_hook(self._end_step)
        return prepared

    @contextmanager
    def accumulate(self, *models: Any) -> Iterator[None]:
        """Accumulate gradients as Accelerate does."""
        self._has_accumulated = True
        with super().accumulate(*models):
            yield

    def backward(self, loss: Any, **named: Any) -> None:
        """Compute gradients of the loss, divided by how many micro-batches a step has.

        Raises:
            InputError: if there are several, and the script updates after each.
        """
        count = self.run.draft.strategy.micro_batch_count or 1
        if count > 1 and not self._has_accumulated:
            raise InputError(
                f"is not accumulated, where a step of the plan has {count} micro-batches",
                field="accelerator.backward",
                remedy="have the loop's body inside `with accelerator.accumulate(model):`",
            )
        if self._unchecked is not None:
            self._check_rows(*self._unchecked)
        self._is_in_step = True
        super().backward(loss, **named)

    def end_training(self) -> None:
        """Say how long steps took, beside the plan, and end as Accelerate does."""
        self._say_of_rank_0(self.run.last_line())
        super().end_training()

    def _prepare_blocks(self, model: Any) -> None:
        draft = self.run.draft
        check = check_model if hasattr(model, "config") else check_adapters
        check(model, draft)
        self._say_of_rank_0(*unplanned_adapters(model))
        path = blocks_path(model, draft.plan.model.resolved.block_count)
        if is_sharded(draft):
            kinds = {type(block).__name__ for block in model.get_submodule(path).children()}
            self.state.fsdp_plugin.transformer_cls_names_to_wrap = sorted(kinds)
        else:
            checkpoint_blocks(model, path, draft.strategy)

    def _meet_rows(self, model: Any, inputs: Any, named: Any) -> None:
        """Note that a step begins with this forward, and hold its rows to the plan's.

        Of a model in evaluation, as `from_pretrained` gives it, that is known once a backward
        follows.
        """
        self._unchecked = None
        if not records_gradients():
            return
        if not self._is_in_step:
            self.run.clock.begin()
        if model.training:
            self._check_rows(inputs, named)
        else:
            self._unchecked = (inputs, named)

    def _check_rows(self, inputs: Any, named: Any) -> None:
        self._unchecked = None
        check_length(named, self.run.draft)
        if not self._has_met_rows:
            self._has_met_rows = True
            planned = self.run.draft.strategy.micro_batch_size
            found = next(row_counts([inputs, named]), planned)
            check_same("micro-batch size", found=found, planned=planned)

    def _end_step(self, *_given: Any) -> None:
        if self._is_in_step:
            self._is_in_step = False
            self.run.clock.end()

    def _say_of_rank_0(self, *lines: str) -> None:
        if self.is_main_process:
            for line in lines:
                say(line)


def _draft(plan: Plan) -> Draft:
    draft = settled_fully_sharded(plan, "accelerate")
    degree = draft.strategy.tensor_parallel_degree
    if degree > 1:
        raise refusal(
            draft,
            field="tensor_parallel_degree",
            value=degree,
            problem="Accelerate splits no model, and shards none that transformers has split",
            remedy="use transformers' Trainer or meshwright.start(), or plan with "
            "limits.tensor_parallel_degree 1",
        )
    return draft


def _arguments(draft: Draft) -> dict[str, Any]:
    """Return the plan as keyword arguments of `Accelerator`.

    Gradients are reduced after each micro-batch where they are sharded, so that no rank keeps them
    whole, as planned.
    """
    sharded, strategy = is_sharded(draft), draft.strategy
    accumulation = GradientAccumulationPlugin(
        num_steps=strategy.micro_batch_count, sync_each_batch=sharded
    )
    arguments = {
        "mixed_precision": MIXED_PRECISION[draft.plan.job.resolved.precision],
        "gradient_accumulation_plugin": accumulation,
    }
    if not sharded:
        return arguments
    checkpointing = next(layer_groups(strategy)).activation_checkpointing
    return arguments | {
        "fsdp_plugin": FullyShardedDataParallelPlugin(
            fsdp_version=2,
            auto_wrap_policy="transformer_based_wrap",
            reshard_after_forward=zero_stages(strategy) == {3},
            cpu_offload=Offload.PARAMETERS in offloads(strategy),
            activation_checkpointing=checkpointing is ActivationCheckpointing.FULL,
        ),
        "parallelism_config": ParallelismConfig(
            dp_replicate_size=strategy.replicate_degree,
            dp_shard_size=strategy.shard_degree,
            cp_size=strategy.context_parallel_degree,
        ),
    }


def _group_arguments(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a script says of the process group, as its timeout."""
    handlers = own.get("kwargs_handlers") or ()
    found = (item.to_kwargs() for item in handlers if isinstance(item, InitProcessGroupKwargs))
    return next(found, {})


def _check_engine(found: DistributedType, draft: Draft) -> None:
    """Return if Accelerate shards where the plan does, and nowhere else.

    Raises:
        InputError: if it does otherwise: Accelerate says nothing of it.
    """
    if is_sharded(draft) and found is not DistributedType.FSDP:
        raise InputError(
            "shards nothing on such ranks",
            field="distributed_type",
            value=found.value,
            remedy="start ranks by torchrun or accelerate launch, and without GPUs say cpu=True",
        )
    if not is_sharded(draft) and found in _ENGINES:
        raise InputError(
            "is not the plan's, which has replicas of the whole model",
            field="distributed_type",
            value=found.value,
            remedy="start the script without a configuration of FSDP, DeepSpeed or Megatron-LM",
        )
