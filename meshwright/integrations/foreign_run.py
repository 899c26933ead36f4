"""Foreign run: a plan that another framework runs, what it must be like, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from executor.step_clock import StepClock
from planner.errors import InputError
from planner.exporters.draft import Draft
from planner.exporters.fully_sharded import is_sharded
from planner.exporters.job_fields import unwritten_adapters
from planner.importers.hugging_face.config_json import graph_from_huggingface
from planner.schema.plan import Plan

_TENSOR_AXIS = "tp"  # as transformers and Accelerate name it
_SIZES = ("hidden_size", "block_count", "vocabulary_size", "tied_embeddings")


def read_plan(plan: Plan | str | Path) -> Plan:
    """Return the plan, read where it is a path.

    Raises:
        DocumentError: if the file cannot be read as a plan.
    """
    return plan if isinstance(plan, Plan) else Plan.read(Path(plan))


def check_same(field: str, *, found: object, planned: object) -> None:
    """Return if a setting of the framework is the plan's.

    Raises:
        InputError: if it is another.
    """
    if found != planned:
        raise InputError(
            f"is not the plan's, which has {planned}",
            field=field,
            value=found,
            remedy=f"leave {field} as the plan has it, or plan for what you set",
        )


def check_ranks(found: int, plan: Plan) -> None:
    """Return if there are as many ranks as the plan has.

    Raises:
        InputError: if there are more or fewer.
    """
    planned = plan.strategy.world_size
    if found != planned:
        raise InputError(
            f"the plan is for {planned} ranks",
            field="world size",
            value=found,
            remedy=f"start {planned} processes, or plan for the devices that are there",
        )


def row_counts(batch: Any) -> Iterator[int]:
    """Yield how many rows each tensor of a batch has, however deep it lies in it."""
    if hasattr(batch, "shape"):
        yield from batch.shape[:1]
    elif isinstance(batch, Mapping):
        yield from row_counts(list(batch.values()))
    elif isinstance(batch, list | tuple):
        for item in batch:
            yield from row_counts(item)


def check_model(model: Any, draft: Draft) -> None:
    """Return if a model of transformers has the planned sizes and adapters.

    Raises:
        InputError: naming the first that is another.
    """
    check_adapters(model, draft)
    graph = draft.plan.model.resolved
    if graph.is_measured:
        return
    built = graph_from_huggingface(model.config.to_dict(), name=graph.name)
    for name in _SIZES:
        check_same(f"model.{name}", found=getattr(built, name), planned=getattr(graph, name))


def check_adapters(model: Any, draft: Draft) -> None:
    """Return if a module has the planned adapters, as PEFT puts them into a part of it, or none.

    Raises:
        InputError: if it has others.
    """
    kinds = (f"{item.peft_type.value} of rank {getattr(item, 'r', 0)}" for item in _configs(model))
    found = sorted(kinds)
    planned = draft.plan.job.resolved.adapters
    expected = [] if planned is None else [f"LORA of rank {planned.rank}"]
    check_same("adapters", found=found, planned=expected)


def unplanned_adapters(model: Any) -> Iterator[str]:
    """Yield a line if adapters are of what the plan counts none of: the weights of experts."""
    for item in _configs(model):
        if names := getattr(item, "target_parameters", None):
            yield (
                f"not as planned: adapters of {', '.join(names)} are trained, which are in no "
                "plan's memory and time"
            )


def _configs(model: Any) -> Iterable[Any]:
    """Return PEFT's configurations of a module's adapters, or of a part's."""
    found = (getattr(module, "peft_config", None) for module in model.modules())
    first: Mapping[str, Any] = next(filter(None, found), {})
    return first.values()


def check_length(inputs: Any, draft: Draft) -> None:
    """Return if the rows of a batch are no longer than planned, where it names its tokens.

    Raises:
        InputError: if they are: memory was planned for shorter ones.
    """
    planned = draft.plan.job.resolved.sequence_length
    tokens = inputs.get("input_ids") if isinstance(inputs, Mapping) else None
    if planned is None or tokens is None:
        return
    found = tokens.shape[-1] * draft.strategy.context_parallel_degree
    if found > planned:
        raise InputError(
            f"is more than the {planned} tokens that were planned",
            field="sequence length",
            value=found,
            remedy=f"truncate rows to {planned} tokens, or plan for a sequence_length of {found}",
        )


def check_placement(model: Any, draft: Draft, *, remedy: str) -> None:
    """Return if parameters lie over the ranks as planned; `remedy` is how a model is split.

    Raises:
        InputError: if they do not.
    """
    axes = {axis for item in model.parameters() for axis in _axes(item)}
    degree = draft.strategy.tensor_parallel_degree
    if is_sharded(draft) and draft.strategy.world_size > 1 and not axes:
        raise InputError(
            "is not sharded over ranks",
            field="model",
            value=type(model).__name__,
            remedy="have it prepared with the plan's arguments as they are",
        )
    if degree > 1 and _TENSOR_AXIS not in axes:
        raise InputError(
            f"is not split over {degree} tensor-parallel ranks",
            field="model",
            value=type(model).__name__,
            remedy=remedy,
        )


def _axes(parameter: Any) -> tuple[str, ...]:
    """Return the names of the mesh axes that a parameter lies on, none of a whole one."""
    mesh = getattr(parameter, "device_mesh", None)
    return () if mesh is None else tuple(mesh.mesh_dim_names or ())


class ForeignRun:
    """What is said of a run: first what is not as planned, in the end its steps beside the plan."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.clock = StepClock()

    @property
    def plan(self) -> Plan:
        """Return the plan."""
        return self.draft.plan

    def first_lines(self) -> Iterator[str]:
        """Yield a line for each loss of the plan in the framework; its adapters were checked."""
        adapters = self.plan.job.resolved.adapters
        checked = None if adapters is None else unwritten_adapters(adapters)
        for loss in (item for item in self.draft.losses if item != checked):
            yield f"not as planned: {loss}"

    def last_line(self) -> str:
        """Return the measured step beside the predicted one."""
        return self.clock.line(self.plan)


def say(line: str) -> None:
    """Print a line for the person who watches the run."""
    print(line, flush=True)  # noqa: T201 - the script is theirs, and shows what it prints
