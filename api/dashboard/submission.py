"""The new-plan form: what was typed in, kept as typed, and read into a request or complaints.

Each complaint stands at the field that it is about. Model, cluster and job are all read, so that
everything wrong is said at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import ValidationError

from api.schemas import PlanRequest
from planner.errors import InputError, shorten
from planner.hardware import cluster_hardware
from planner.requests.resolution import resolved_cluster, resolved_model, resolved_request
from planner.schema.complaints import complaint_words
from planner.schema.document import field_path, meant, parse_fields
from planner.schema.job import Job, Limits, Objective, Optimizer, Precision
from planner.schema.plan import Infeasible, Plan, ResolvedCluster, ResolvedModel
from planner.schema.service import Problem
from planner.schema.yaml_text import to_yaml
from planner.units import counted

Resolved = TypeVar("Resolved", ResolvedModel, ResolvedCluster)

DEFAULTS: dict[str, str] = {
    "model_source": "name",
    "model_name": "",
    "model_config": "",
    "cluster_source": "short",
    "cluster_short": "",
    "cluster_document": "",
    "global_batch_size": "",
    "sequence_length": "",
    "precision": Precision.BF16.value,
    "optimizer": Optimizer.ADAMW.value,
    "stack": "",
    "framework": "",
    "objective": Objective.THROUGHPUT.value,
    "job_rest": "",
    "tensor_parallel_min": "",
    "tensor_parallel_max": "",
    "pipeline_parallel_min": "",
    "pipeline_parallel_max": "",
    "memory_headroom_percent": f"{Limits().memory_headroom_ratio * 100:g}",
    "fits_percent": f"{(Limits().fits_probability or 0.5) * 100:g}",
    "simplicity_percent": f"{Limits().simplicity_ratio * 100:g}",
    "solver_seconds": f"{Limits().solver_seconds:g}",
}
_RULES: dict[str, tuple[str, str]] = {
    "tensor_parallel": (
        "must be whole numbers from 1, the least not above the most",
        "give degrees such as 1 and 8, or leave them empty",
    ),
    "pipeline_parallel": (
        "must be whole numbers from 1, the least not above the most",
        "give degrees such as 1 and 16, or leave them empty",
    ),
    "memory_headroom_percent": (
        "must be a number from 0 to less than 100",
        "give the share of device memory to leave free, such as 5",
    ),
    "fits_percent": (
        "must be a number from 50 to less than 100",
        "give the least chance of fitting, such as 95; 50 asks for no more than the headroom",
    ),
    "simplicity_percent": (
        "must be a number from 0 to 100",
        "give by how much longer a simpler plan's step may be, such as 2; 0 takes the fastest",
    ),
    "solver_seconds": (
        "must be a number above 0 and at most 86,400",
        "give the seconds that the search may take, such as 60",
    ),
}
_DERIVED = ("global_batch_size", "sequence_length")  # what they are where they are left empty
# Fields of a job that the form has one of its own for; the others stand in `job_rest`.
_OWN = (
    "global_batch_size",
    "sequence_length",
    "precision",
    "optimizer",
    "stack",
    "framework",
    "objective",
)
_LIMITS = {
    "tensor_parallel_degree": "tensor_parallel",
    "pipeline_parallel_degree": "pipeline_parallel",
    "memory_headroom_ratio": "memory_headroom_percent",
    "fits_probability": "fits_percent",
    "simplicity_ratio": "simplicity_percent",
    "solver_seconds": "solver_seconds",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """What is wrong with a field, what it holds, and what to do."""

    problem: str
    value: str | None
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A form as typed; `request` is there unless something is wrong."""

    values: Mapping[str, str]
    complaints: dict[str, Complaint] = field(default_factory=dict)
    request: PlanRequest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Understanding:
    """What a form says so far: model and cluster in words, and what its empty fields stand for."""

    model: str
    cluster: str
    empty: Mapping[str, str]


def typed(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the form's values: those given, and the defaults of the others."""
    return {
        name: given[name] if isinstance(given.get(name), str) else default
        for name, default in DEFAULTS.items()
    }


def values_of(answer: Plan | Infeasible) -> dict[str, str]:
    """Return the form's values that ask for `answer` again."""
    job = answer.job.given if isinstance(answer.job.given, dict) else {}
    given = job.get("limits")
    limits = given if isinstance(given, dict) else {}
    read = Limits.model_validate(limits)
    return typed(
        {
            **_reference(answer.model.given, "model", "name", "config"),
            **_reference(answer.cluster.given, "cluster", "short", "document"),
            **{name: str(job[name]) for name in _OWN if job.get(name) is not None},
            **_bounds("tensor_parallel", read.tensor_parallel_degree.model_dump()),
            **_bounds("pipeline_parallel", read.pipeline_parallel_degree.model_dump()),
            "memory_headroom_percent": f"{read.memory_headroom_ratio * 100:g}",
            "fits_percent": f"{(read.fits_probability or 0.5) * 100:g}",
            "simplicity_percent": f"{read.simplicity_ratio * 100:g}",
            "solver_seconds": f"{read.solver_seconds:g}",
            "job_rest": _rest_of(job, limits),
        }
    )


def _rest_of(job: Mapping[str, Any], limits: Mapping[str, Any]) -> str:
    """Return in YAML what a job says beside its defaults that no field of the form's own has."""
    usual = Job().model_dump(mode="json")
    rest = {
        name: value
        for name, value in job.items()
        if name not in (*_OWN, "limits") and value != usual.get(name)
    }
    own_limits = {
        name: value
        for name, value in limits.items()
        if name not in _LIMITS and value != usual["limits"].get(name)
    }
    if own_limits:
        rest["limits"] = own_limits
    return to_yaml(rest) if rest else ""


def read_submission(values: Mapping[str, str]) -> Submission:
    """Return the request that the form's values spell, or what is wrong with each field."""
    complaints: dict[str, Complaint] = {}
    model = _read(complaints, model_field(values), lambda: _model(values))
    cluster = _read(complaints, cluster_field(values), lambda: _cluster(values))
    job = _job(values, complaints)
    if model is None or cluster is None or job is None:
        return Submission(values=values, complaints=complaints)
    try:
        resolved_request(model, cluster, job)
    except InputError as error:
        where = form_field(error.field, values) or cluster_field(values)
        complaints[where] = _complaint(error)
        return Submission(values=values, complaints=complaints)
    request = PlanRequest.model_validate(
        {"model": model.given, "cluster": cluster.given, "job": job.model_dump(mode="json")}
    )
    return Submission(values=values, request=request)


def understanding(values: Mapping[str, str]) -> Understanding:
    """Return what `values` say so far; what is wrong stands in the words of model or cluster."""
    complaints: dict[str, Complaint] = {}
    model = cluster = job = None
    if values[model_field(values)].strip():
        model = _read(complaints, "model", lambda: _model(values))
    if values[cluster_field(values)].strip():
        cluster = _read(complaints, "cluster", lambda: _cluster(values))
    if model is not None and cluster is not None:
        job = _job(values, {})
    empty: dict[str, str] = {}
    if model is not None and cluster is not None and job is not None:
        try:
            whole = resolved_request(model, cluster, job).job.resolved
        except InputError as error:
            complaints["cluster"] = _complaint(error)
        else:
            empty = {each: f"{getattr(whole, each)}" for each in _DERIVED}
    words = {part: _complaint_words(each) for part, each in complaints.items()}
    return Understanding(
        model=words.get("model", "" if model is None else _model_words(model)),
        cluster=words.get("cluster", "" if cluster is None else _cluster_words(cluster)),
        empty=empty,
    )


def _complaint_words(complaint: Complaint) -> str:
    got = "" if complaint.value is None else f" (got {complaint.value})"
    return f"{complaint.problem}{got}; {complaint.remedy}"


def _model_words(model: ResolvedModel) -> str:
    graph = model.resolved
    return (
        f"Read as {graph.name}: {graph.architecture}, {graph.block_count:,} blocks, hidden size "
        f"{graph.hidden_size:,}, sequences of up to {graph.maximum_sequence_length:,} tokens"
    )


def _cluster_words(cluster: ResolvedCluster) -> str:
    groups = ", ".join(
        f"{counted(group.node_count, 'node')} of {group.devices_per_node} {group.device}"
        for group in cluster.resolved.node_groups
    )
    return f"Read as {counted(cluster.resolved.device_count, 'device')}: {groups}"


def refused(values: Mapping[str, str], problem: Problem) -> Submission:
    """Return the form with what the service found wrong, at its field where it has one."""
    complaints: dict[str, Complaint] = {}
    for item in problem.errors:
        where = form_field(item.field, values)
        if where is not None:
            shown = None if item.value is None else shorten(item.value)
            complaints[where] = Complaint(
                problem=item.problem or problem.detail, value=shown, remedy=item.remedy
            )
    return Submission(values=values, complaints=complaints)


def form_field(name: str, values: Mapping[str, str]) -> str | None:
    """Return the form's field for a document's field such as `job.limits.solver_seconds`."""
    root, *path = name.split(".")
    if root == "model":
        return model_field(values)
    if root in {"cluster", "node_groups", "device"}:
        return cluster_field(values)
    of_job = root == "job" and bool(path)
    if of_job:
        root, *path = path
    if root == "limits" and path:
        return _LIMITS.get(path[0], "job_rest")
    own = root in _RULES or root in _OWN
    return root if own else _LIMITS.get(root, "job_rest" if of_job else None)


def model_field(values: Mapping[str, str]) -> str:
    """Return the field that says which model."""
    return "model_config" if values["model_source"] == "config" else "model_name"


def cluster_field(values: Mapping[str, str]) -> str:
    """Return the field that says which cluster."""
    return "cluster_document" if values["cluster_source"] == "document" else "cluster_short"


def _model(values: Mapping[str, str]) -> ResolvedModel:
    if values["model_source"] != "config":
        name = _filled(values["model_name"], "model", "choose a model, or paste its config.json")
        return resolved_model(name)
    text = _filled(values["model_config"], "config.json", "paste the model's config.json")
    return resolved_model(parse_fields(text.encode(errors="replace"), source="config.json"))


def _cluster(values: Mapping[str, str]) -> ResolvedCluster:
    cluster = _given_cluster(values)
    cluster_hardware(cluster.resolved)
    return cluster


def _given_cluster(values: Mapping[str, str]) -> ResolvedCluster:
    if values["cluster_source"] != "document":
        remedy = (
            "write for example 64xh100, 16x8xh100-sxm5-80gb or 16xp5.48xlarge, or paste a document"
        )
        return resolved_cluster(_filled(values["cluster_short"], "cluster", remedy))
    text = _filled(values["cluster_document"], "cluster", "paste a cluster in YAML or JSON")
    content = text.encode(errors="replace")
    return resolved_cluster(parse_fields(content, source="cluster", yaml_allowed=True))


def _filled(text: str, name: str, remedy: str) -> str:
    if not text.strip():
        raise InputError("is required", field=name, remedy=remedy)
    return text.strip()


def _read(
    complaints: dict[str, Complaint], name: str, read: Callable[[], Resolved]
) -> Resolved | None:
    try:
        return read()
    except InputError as error:
        complaints[name] = _complaint(error)
        return None


def _complaint(error: InputError) -> Complaint:
    shown = None if error.value is None else shorten(error.value)
    return Complaint(problem=f"{error.field}: {error.problem}", value=shown, remedy=error.remedy)


def _job(values: Mapping[str, str], complaints: dict[str, Complaint]) -> Job | None:
    fields = _job_rest(values, complaints)
    if fields is None:
        return None
    fields |= {name: values[name].strip() for name in _OWN if values[name].strip()}
    rest = fields.get("limits", {})
    fields["limits"] = {**rest, **_limits(values)} if isinstance(rest, Mapping) else rest
    try:
        return Job.model_validate(fields)
    except ValidationError as error:
        for item in error.errors(include_url=False):
            where, complaint = _job_complaint(item, values)
            complaints.setdefault(where, complaint)
        return None


def _job_rest(values: Mapping[str, str], complaints: dict[str, Complaint]) -> dict[str, Any] | None:
    """Return the fields that were typed in beside the form's own, or `None` and a complaint."""
    text = values["job_rest"].strip()
    if not text:
        return {}
    try:
        content = text.encode(errors="replace")
        return parse_fields(content, source="further job fields", yaml_allowed=True)
    except InputError as error:
        complaints["job_rest"] = _complaint(error)
        return None


def _job_complaint(error: Mapping[str, Any], values: Mapping[str, str]) -> tuple[str, Complaint]:
    """Return at which field of the form to say one of pydantic's complaints of the job."""
    path = field_path(error["loc"])
    message, remedy = complaint_words(error)
    if not path:  # a rule over several fields; those of the form are about the framework
        return "framework", Complaint(problem=message, value=None, remedy="change one of them")
    where = form_field(f"job.{path}", values) or "job_rest"
    if where in _RULES:
        problem, remedy = _RULES[where]
        return where, Complaint(problem=problem, value=_typed_at(where, values), remedy=remedy)
    if where in _OWN:
        return where, Complaint(problem=message, value=_typed_at(where, values), remedy=remedy)
    if error["type"] == "extra_forbidden":
        remedy = meant(error["loc"], Job) + remedy
    return where, Complaint(problem=f"{path}: {message}", value=None, remedy=remedy)


def _limits(values: Mapping[str, str]) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for name in ("tensor_parallel", "pipeline_parallel"):
        bounds = {end: values[f"{name}_{end}"].strip() for end in ("min", "max")}
        limits[f"{name}_degree"] = {end: text for end, text in bounds.items() if text}
    if values["solver_seconds"].strip():
        limits["solver_seconds"] = values["solver_seconds"].strip()
    for name in ("memory_headroom_ratio", "fits_probability", "simplicity_ratio"):
        percentage = values[_LIMITS[name]].strip()
        if percentage:
            limits[name] = _ratio(percentage)
    return limits


def _ratio(percentage: str) -> float | str:
    """Return the ratio, or the text for pydantic to complain about."""
    try:
        return float(percentage) / 100
    except ValueError:
        return percentage


def _typed_at(where: str, values: Mapping[str, str]) -> str:
    if where in values:
        return shorten(values[where])
    ends = (values[f"{where}_min"] or "1", values[f"{where}_max"] or "no limit")
    return shorten(" to ".join(ends))


def _reference(given: object, part: str, name_source: str, document_source: str) -> dict[str, str]:
    if isinstance(given, str):
        return {f"{part}_source": name_source, f"{part}_{name_source}": given}
    return {
        f"{part}_source": document_source,
        f"{part}_{document_source}": json.dumps(given, indent=2),
    }


def _bounds(name: str, bounds: dict[str, int]) -> dict[str, str]:
    unlimited = {"min": 1, "max": 2**20}
    return {f"{name}_{end}": str(bound) for end, bound in bounds.items() if bound != unlimited[end]}
