"""Every field of a job changes a prediction, or there is a reason why it changes none.

Fields are found in the schema, so that a new one is tried as soon as it is there: in jobs and
strategies of many kinds, until one prediction of time or memory differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from functools import cache
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

from planner.cost.step import predict
from planner.hardware import ClusterHardware, cluster_hardware
from planner.importers.clusters import cluster_from_fields
from planner.importers.models import read_model
from planner.schema.job import DegreeLimit, Job, LearntPeak
from planner.schema.plan import Prediction
from planner.schema.strategy import Strategy
from planner.workload.layer import ModelWorkload
from planner.workload.model import model_workload
from tests.learnt_runs import a_learnt_run

DEVICE = "h100-sxm5-80gb"
Scene = tuple[str, dict[str, Any], dict[str, Any]]
"""A model, a job and a strategy."""

_SEARCHED = "says what is searched, and changes no price"
REASONS = {
    "objective": "says which plan is best, of the same prices",
    "calibration.digest": "names where runs are from",
    "calibration.peaks.trial_count": "says how many trials the other two rest on",
    "calibration.stack": "is of calibrations of earlier versions, which are refused",
    "calibration.devices": "is of calibrations of earlier versions, which are refused",
    "schema_version": "is of the document",
    "limits.tensor_parallel_degree": _SEARCHED,
    "limits.pipeline_parallel_degree": _SEARCHED,
    "limits.virtual_pipeline_degree": _SEARCHED,
    "limits.context_parallel_degree": _SEARCHED,
    "limits.context_parallel_kinds": _SEARCHED,
    "limits.expert_parallel_degree": _SEARCHED,
    "limits.expert_tensor_parallel_degree": _SEARCHED,
    "limits.data_parallel_replicate_degree": _SEARCHED,
    "limits.data_parallel_shard_degree": _SEARCHED,
    "limits.micro_batch_size": _SEARCHED,
    "limits.sequence_parallel": _SEARCHED,
    "limits.zero_stages": _SEARCHED,
    "limits.activation_checkpointing": _SEARCHED,
    "limits.offload": _SEARCHED,
    "limits.pipeline_schedules": _SEARCHED,
    "limits.solver_seconds": _SEARCHED,
    "limits.accepted_gap_ratio": _SEARCHED,
    "limits.simplicity_ratio": _SEARCHED,
    "limits.device_returns": _SEARCHED,
}

MODELS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("llama-3-8b", {}),
    ("qwen3-30b-a3b", {"expert_parallel_degree": 8}),
)
STACKS = ("torch", "megatron", "deepspeed")
JOBS: tuple[dict[str, Any], ...] = (
    {},
    {"precision": "fp8"},
    {"fused_attention": False, "dropout": True},
    {"adapters": {"rank": 16, "base_bits": 4}},
    {"precision": "fp32", "tensor_float_32": True},
)
# Long sequences wait for no host, short ones for little else
LENGTHS = (4096, 128)
STRATEGIES: tuple[dict[str, Any], ...] = (
    {"data_parallel_shard_degree": 8, "zero_stage": 1, "tensor_parallel_degree": 2},
    {
        "data_parallel_shard_degree": 8,
        "zero_stage": 3,
        "tensor_parallel_degree": 2,
        "sequence_parallel": True,
        "offload": ("optimizer",),
    },
    {"data_parallel_replicate_degree": 8, "pipeline_parallel_degree": 2, "zero_stage": 0},
    {"data_parallel_shard_degree": 16, "zero_stage": 3, "offload": ("activations",)},
)


def leaves(kind: type[BaseModel], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the annotation of each field of a document, and of its parts."""
    for name, field in kind.model_fields.items():
        part = next((one for one in bare(field.annotation) if is_part(one)), None)
        if part is None:
            yield path + name, field.annotation
        elif dict in {get_origin(one) for one in bare(field.annotation)}:
            yield from leaves(part, f"{path}{name}.{DEVICE}.")
        else:
            yield from leaves(part, f"{path}{name}.")


def bare(annotation: Any) -> list[Any]:
    """Return an annotation and all that it is made of."""
    if get_origin(annotation) is Literal:
        return [annotation]
    inner = [one for arg in get_args(annotation) for one in bare(arg)]
    return [annotation, *inner]


def is_part(kind: Any) -> bool:
    """Whether a field of this kind has fields of its own; an interval of degrees is one value."""
    return isinstance(kind, type) and issubclass(kind, BaseModel) and kind is not DegreeLimit


FIELDS = dict(leaves(Job))


def others(annotation: Any, now: Any) -> list[Any]:
    """Return values of a field's kind that it does not have now."""
    found: list[Any] = []
    for kind in bare(annotation):
        if get_origin(kind) is Literal:
            found.extend([one] if is_sequence(annotation) else one for one in get_args(kind))
        elif kind is bool:
            found.extend([True, False])
        elif isinstance(kind, type) and issubclass(kind, Enum):
            found.extend([[one.value] if is_sequence(annotation) else one.value for one in kind])
        elif kind is DegreeLimit:
            found.append(2)
        elif kind in {int, float} and not is_sequence(annotation):
            found.extend([1, 1.25, 0.75, 0.5, 8] if now is None else [2 * now, now / 2, 0.9, 4])
        elif kind is str:
            found.extend(["another", "a" * 64])
    return [value for value in found if value != now]


def is_sequence(annotation: Any) -> bool:
    """Whether a field holds several values."""
    return any(get_origin(one) is tuple for one in bare(annotation))


@cache
def workload(model: str) -> ModelWorkload:
    """A model's layers."""
    return model_workload(read_model(model)[1])


@cache
def hardware() -> ClusterHardware:
    """Two nodes of eight H100 with drives."""
    drives = {
        "capacity_bytes": 8e12,
        "read_bytes_per_second": 40e9,
        "write_bytes_per_second": 20e9,
    }
    group = {
        "name": "h100",
        "device": DEVICE,
        "node_count": 2,
        "devices_per_node": 8,
        "nvme": drives,
    }
    return cluster_hardware(cluster_from_fields({"name": "two", "node_groups": [group]}))


@cache
def scenes() -> tuple[Scene, ...]:
    """Return what fields are tried in, the plainest first; experts are spread where they can be."""
    return tuple(
        (
            model,
            {**job, "stack": stack, "sequence_length": length, "global_batch_size": 16},
            {**strategy, **spread},
        )
        for job in JOBS
        for model, spread in MODELS
        for stack in STACKS
        for length in LENGTHS
        for strategy in STRATEGIES
    )


def predicted(model: str, job: dict[str, Any], strategy: dict[str, Any]) -> Prediction:
    """What a strategy costs."""
    whole = Job.model_validate(job)
    layers = workload(model)
    own = Strategy.model_validate(strategy).resolved(
        block_count=sum(count for _, count in layers.runs),
        global_batch_size=whole.global_batch_size or 0,
    )
    return predict(layers, hardware(), whole, own)


def with_value(job: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a job with a field set; the parts around it are there."""
    first, _, rest = path.partition(".")
    inner = job.get(first, {})
    if rest and isinstance(inner, list):
        return {**job, first: [with_value(one, rest, value) for one in inner]}
    return {**job, first: with_value(inner, rest, value) if rest else value}


def value_at(job: dict[str, Any], path: str) -> Any:
    """Return what a job has at a path, its defaults filled in."""
    found: Any = Job.model_validate(job)
    for name in path.split("."):
        found = found[0] if isinstance(found, tuple) else found
        found = found[name] if isinstance(found, dict) else getattr(found, name)
    return found


def changes_a_prediction(path: str, tried: Sequence[Scene]) -> bool:
    """Whether another value of a field changes any prediction that it is tried in."""
    for model, plain, strategy in tried:
        part = path.partition(".")[0]
        whole_parts = {"adapters": {"rank": 16}, "calibration": calibration(plain["stack"], path)}
        start = {**plain, **({part: whole_parts[part]} if part in whole_parts else {})}
        start = {**start, part: plain.get(part) or start[part]} if part in start else start
        before = predicted(model, start, strategy)
        for value in others(FIELDS[path], value_at(start, path)):
            try:
                after = predicted(model, with_value(start, path, value), strategy)
            except ValueError:
                continue  # a value that the schema or the strategy refuses
            if after != before:
                return True
    return False


def calibration(stack: str, path: str) -> dict[str, Any]:
    """A calibration of one run, and of peaks: of trials, or of the runs that `path` is a field of.

    The former come first where both are there.
    """
    run = a_learnt_run(device=DEVICE, stack=stack, log_error=0.1).model_dump(mode="json")
    kept = {name: run[name] for name in LearntPeak.model_fields}
    peaks = {"log_ratio": 0.1, "error_ratio": 0.1, "trial_count": 2}
    own = path.startswith("calibration.measured_peaks")
    return {
        "name": "ours",
        "runs": [run],
        **({"measured_peaks": [kept]} if own else {"peaks": peaks}),
    }


@pytest.mark.parametrize("path", sorted(FIELDS))
def test_a_field_changes_a_prediction_or_there_is_a_reason_why_not(path: str) -> None:
    part = path.partition(".")[0]
    jobs_with_it_first = sorted(scenes(), key=lambda scene: part not in scene[1])
    tried = scenes()[::20] if path in REASONS else jobs_with_it_first
    assert changes_a_prediction(path, tried) is (path not in REASONS)


def test_reasons_are_of_fields_that_there_are() -> None:
    assert set(REASONS) <= set(FIELDS)
