"""Hugging Face Trainer: the arguments that a plan is, and a callback that holds the run to them.

    arguments = TrainingArguments("out", max_steps=100, **planned_arguments("plan.json"))
    callbacks = [PlanCallback("plan.json")]
    model = AutoModelForCausalLM.from_pretrained("llama/", **planned_loading("plan.json"))
    Trainer(model, arguments, train_dataset=rows, callbacks=callbacks).train()

The Trainer drives torch's `fully_shard` and DDP through Accelerate, by arguments that a script may
change, of a model that it may load otherwise: a run that is not the plan's ends before its first
step. A tensor-parallel model is split and sharded by transformers as it is loaded.
"""

# ruff: noqa: E402 - what is not installed is named before anything imports it

from __future__ import annotations

from planner.extras import check_extras

check_extras(__name__, __name__)

from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from accelerate.parallelism_config import ParallelismConfig
from transformers import TrainerCallback, TrainingArguments
from transformers.distributed.configuration_utils import DistributedConfig

from executor.apply.foreign_model import is_trained
from meshwright.integrations.cpu_ranks import let_cpu_ranks_shard
from meshwright.integrations.foreign_run import (
    ForeignRun,
    check_length,
    check_model,
    check_placement,
    check_ranks,
    check_same,
    read_plan,
    say,
    unplanned_adapters,
)
from planner.exporters.draft import Draft
from planner.exporters.hugging_face import loading_fields, settled_for_trainer, trainer_fields
from planner.schema.job import Precision
from planner.schema.plan import Plan

_CHECKPOINTING, _OLD_CHECKPOINTING = "activation_checkpointing", "gradient_checkpointing"
_PARALLELISM = "parallelism_config"
_SPLIT = "load it with from_pretrained(..., **planned_loading(plan))"


def planned_arguments(plan: Plan | str | Path) -> dict[str, Any]:
    """Return the keyword arguments of `TrainingArguments` that the plan is.

    Raises:
        InputError: if the Trainer cannot run the plan, as one with pipeline stages.
    """
    arguments = _fields(_draft(read_plan(plan)))
    if _PARALLELISM in arguments:
        arguments[_PARALLELISM] = ParallelismConfig(**arguments[_PARALLELISM])
    return arguments


def planned_loading(plan: Plan | str | Path) -> dict[str, Any]:
    """Return the keyword arguments of `from_pretrained` that the plan is: none but to split.

    Raises:
        InputError: if the Trainer cannot run the plan.
    """
    draft = _draft(read_plan(plan))
    fields: dict[str, Any] = loading_fields(draft)
    if not fields:
        return {}
    narrow = draft.plan.job.resolved.precision in {Precision.BF16, Precision.FP8}
    return {"distributed_config": DistributedConfig(**fields, fsdp_mixed_precision=narrow)}


class PlanCallback(TrainerCallback):
    """Ends a run that is not the plan's, and says in the end how long its steps took."""

    def __init__(self, plan: Plan | str | Path) -> None:
        """Take the plan that `planned_arguments` took, once `TrainingArguments` are made.

        Raises:
            InputError: if the Trainer cannot run the plan.
        """
        self._run = ForeignRun(_draft(read_plan(plan)))
        let_cpu_ranks_shard(self._run.draft)
        self._hook: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Compare ranks, arguments and model with the plan.

        Raises:
            InputError: naming the first that is another.
        """
        del control
        draft = self._run.draft
        check_ranks(args.world_size, draft.plan)
        for name, planned in _fields(draft).items():
            _check_argument(name, getattr(args, name), planned)
        # It makes batches smaller than planned once one does not fit, and says nothing.
        check_same("auto_find_batch_size", found=args.auto_find_batch_size, planned=False)
        check_model(given["model"], draft)
        check_placement(given["model"], draft, remedy=_SPLIT)
        if not getattr(given["model"].config, "is_encoder_decoder", False):
            self._hook = given["model"].register_forward_pre_hook(self._meet, with_kwargs=True)
        if state.is_world_process_zero:
            own = (*unplanned_adapters(given["model"]), *_evaluation_lines(args, draft))
            for line in (*self._run.first_lines(), *own):
                say(line)

    def on_step_begin(self, *_args: Any, **_given: Any) -> None:
        """Note that a step of the optimizer begins."""
        self._run.clock.begin()

    def on_step_end(self, *_args: Any, **_given: Any) -> None:
        """Note that it has ended."""
        self._run.clock.end()

    def on_train_end(self, args: Any, state: Any, control: Any, **_given: Any) -> None:
        """Say how long steps took, beside the plan."""
        del args, control
        if self._hook is not None:
            self._hook.remove()
        if state.is_world_process_zero:
            say(self._run.last_line())

    def _meet(self, model: Any, _inputs: Any, named: Any) -> None:
        if is_trained(model):
            check_length(named, self._run.draft)


def _evaluation_lines(arguments: Any, draft: Draft) -> Iterator[str]:
    """Yield a line if evaluation takes more rows at once than a step, which no plan counts."""
    rows, planned = arguments.per_device_eval_batch_size, draft.strategy.micro_batch_size
    if arguments.do_eval and rows > planned:
        yield (
            f"not as planned: evaluation takes {rows} rows at once, where a step has {planned}: "
            f"their logits may not fit (per_device_eval_batch_size={planned})"
        )


def _draft(plan: Plan) -> Draft:
    return settled_for_trainer(plan, "hf-trainer")


def _fields(draft: Draft) -> dict[str, Any]:
    """Return the plan's arguments, by the name of checkpointing that this release has."""
    made = dict(trainer_fields(draft))
    known = {field.name for field in fields(TrainingArguments)}
    name = _CHECKPOINTING if _CHECKPOINTING in known else _OLD_CHECKPOINTING
    is_checkpointed = made.pop(_OLD_CHECKPOINTING, False)
    return {**made, name: is_checkpointed}


def _check_argument(name: str, found: Any, planned: Any) -> None:
    """Return if an argument, or each planned part of one, is the plan's."""
    if not isinstance(planned, Mapping):
        check_same(name, found=found, planned=planned)
        return
    for part, value in planned.items():
        held = found.get(part) if isinstance(found, Mapping) else getattr(found, part, None)
        check_same(f"{name}.{part}", found=held, planned=value)
