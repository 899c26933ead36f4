"""Resolution: what the user gave, understood whole, with every default spelled out and stated.

References here are names and documents only, never paths: whoever may read files does so through
`planner.importers` and hands the fields on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.cost.peaks import learnt_peaks
from planner.errors import InputError
from planner.hardware import ClusterHardware, check_precision, cluster_hardware
from planner.importers.cluster.short_form import read_short_form
from planner.importers.clusters import cluster_from_fields
from planner.importers.models import model_from_fields, model_names, read_model
from planner.schema.cluster import Cluster
from planner.schema.document import check_values
from planner.schema.job import Job, OffloadStore, Stack
from planner.schema.model import ModelGraph
from planner.schema.plan import ResolvedCluster, ResolvedJob, ResolvedModel
from planner.schema.strategy import Offload
from planner.units import counted
from planner.workload.layer import ModelWorkload
from planner.workload.model import model_workload

DEFAULT_SEQUENCE_LENGTH = 4096
DEFAULT_TOKENS_PER_STEP = 2**22
PARAMETER_COUNT_LIMIT = 10**15


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A resolved request with what the planner derives from it once."""

    model: ResolvedModel
    cluster: ResolvedCluster
    job: ResolvedJob
    workload: ModelWorkload
    hardware: ClusterHardware
    assumptions: tuple[str, ...]


def _unknown_model(name: str) -> InputError:
    from difflib import get_close_matches  # noqa: PLC0415  (20 ms: only errors need it)

    near = get_close_matches(name[:200], model_names(), n=3, cutoff=0.7)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    remedy = f"{hint}use a name that `meshwright models` lists, or give the config.json's fields"
    return InputError("is not a known model", field="model", value=name, remedy=remedy)


def resolved_model(given: str | Mapping[str, Any]) -> ResolvedModel:
    """Return the model that a known name or the fields of a document stand for.

    Raises:
        InputError: if the name is unknown or a field is bad.
    """
    if isinstance(given, str):
        if given not in model_names():
            raise _unknown_model(given)
        shown, graph = read_model(given)
        return model_document(shown, graph)
    fields = dict(given)
    check_values(fields, source="model")
    name = fields.get("name") or fields.get("_name_or_path")
    if name:
        return model_document(fields, model_from_fields(fields, name=str(name)[:200]))
    kind = str(fields.get("model_type") or "model")[:100]
    graph = model_from_fields(fields, name=kind)
    return model_document(fields, graph.model_copy(update={"name": f"{kind} {_size(graph)}"}))


def _size(graph: ModelGraph) -> str:
    """Return the number of parameters as people name models by it: 32.8B, 124M."""
    count = model_workload(graph).parameter_count
    return f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count / 1e6:.0f}M"


def model_document(given: Any, graph: ModelGraph) -> ResolvedModel:
    """Return `graph` with what it was made from and its digest."""
    return ResolvedModel(given=given, resolved=graph, digest=graph.digest())


def resolved_cluster(given: str | Mapping[str, Any]) -> ResolvedCluster:
    """Return the cluster that a short form or the fields of a document stand for.

    Raises:
        InputError: if the form or a field is bad.
    """
    if isinstance(given, str):
        found = read_short_form(given)
        return cluster_document(given, found.cluster, found.notes)
    fields = dict(given)
    check_values(fields, source="cluster")
    return cluster_document(fields, cluster_from_fields(fields))


def cluster_document(
    given: Any, cluster: Cluster, assumptions: tuple[str, ...] = ()
) -> ResolvedCluster:
    """Return `cluster` with what it was made from, what was assumed in that, and its digest."""
    return ResolvedCluster(
        given=given, resolved=cluster, digest=cluster.digest(), assumptions=assumptions
    )


def resolved_request(model: ResolvedModel, cluster: ResolvedCluster, job: Job) -> Request:
    """Return the request with the job's defaults filled in and hardware and workload derived.

    Raises:
        InputError: if model, cluster and job do not go together.
    """
    graph = model.resolved
    hardware = cluster_hardware(cluster.resolved)
    whole, assumptions = _resolved_job(job, graph, cluster.resolved)
    assumptions += _precision_assumptions(whole, hardware)
    workload = model_workload(graph)
    assumptions += _peaks_by_calibration(whole, workload, hardware)
    if workload.parameter_count > PARAMETER_COUNT_LIMIT:
        raise InputError(
            f"has more than {PARAMETER_COUNT_LIMIT} parameters",
            field="model",
            value=workload.parameter_count,
            remedy="check hidden_size, the number of layers and of experts",
        )
    return Request(
        model=model,
        cluster=cluster,
        job=ResolvedJob(given=job.model_dump(mode="json"), resolved=whole, digest=whole.digest()),
        workload=workload,
        hardware=hardware,
        assumptions=(*graph.assumptions, *cluster.assumptions, *assumptions),
    )


def _resolved_job(job: Job, graph: ModelGraph, cluster: Cluster) -> tuple[Job, tuple[str, ...]]:
    assumptions = []
    sequence_length = job.sequence_length
    if sequence_length is None:
        sequence_length = min(graph.maximum_sequence_length, DEFAULT_SEQUENCE_LENGTH)
        assumptions.append(f"sequence_length {sequence_length} was assumed")
    _check_positions(sequence_length, graph)
    limits = job.limits
    if job.offload_to is OffloadStore.NVME:
        _check_nvme(job, cluster)
        kept = tuple(item for item in limits.offload if item is not Offload.ACTIVATIONS)
        limits = limits.model_copy(update={"offload": kept})
        assumptions.append("activations stay on devices, as offload_to nvme is for states")
    if sequence_length > graph.maximum_sequence_length:
        assumptions.append(
            f"sequence_length {sequence_length} exceeds the model's own maximum of "
            f"{graph.maximum_sequence_length}; rotary positions were assumed to be extended"
        )
    global_batch_size = job.global_batch_size
    if global_batch_size is None:
        global_batch_size = _default_batch(sequence_length, cluster.device_count)
        assumptions.append(f"global_batch_size {global_batch_size} was assumed (about 4 M tokens)")
    assumptions.extend(_by_calibration(job, cluster))
    whole = job.model_copy(
        update={
            "sequence_length": sequence_length,
            "global_batch_size": global_batch_size,
            "limits": limits,
        }
    )
    return whole, tuple(assumptions)


def _precision_assumptions(job: Job, hardware: ClusterHardware) -> tuple[str, ...]:
    """Return which devices emulate the job's precision.

    Raises:
        InputError: if one does not have it at all.
    """
    said = []
    for kind in hardware.kinds:
        check_precision(kind.profile, job)
        if job.precision in kind.profile.not_in_hardware:
            said.append(
                f"{kind.device} has no {job.precision.value} in hardware: the rate of fp16, an "
                "upper bound, was assumed"
            )
    return tuple(said)


def _by_calibration(job: Job, cluster: Cluster) -> list[str]:
    """Return which devices the job's calibration has no runs of.

    Raises:
        InputError: if it is of an earlier version.
    """
    if job.calibration is None:
        return []
    if job.calibration.is_superseded:
        raise InputError(
            "has factors by device, as earlier versions kept them, which are no longer applied",
            field="job.calibration",
            value=job.calibration.name,
            remedy="run `meshwright calibrate` again on the same runs, or leave it out",
        )
    if not job.calibration.runs:
        return []
    known = {run.device for run in job.calibration.runs if run.stack is job.stack}
    said = f"calibration {job.calibration.name} has no runs under {job.stack.value} of"
    rest = [name for name in cluster.devices if name not in known]
    return [f"{said} {name}: what others say of it was assumed" for name in rest]


def _peaks_by_calibration(
    job: Job, workload: ModelWorkload, hardware: ClusterHardware
) -> tuple[str, ...]:
    """Return what the job's calibration says of peaks of memory on each kind of device."""
    trials = job.calibration is not None and job.calibration.peaks is not None
    found = []
    for kind in hardware.kinds:
        peaks = learnt_peaks(workload, kind.profile, job)
        if peaks is not None:
            runs = counted(peaks.trial_count, "trial" if trials else "run")
            where = "" if trials else f" on {kind.device}"
            found.append(
                f"by {runs}, peaks of memory{where} were taken for {math.exp(peaks.log_ratio):.2f} "
                f"of what is predicted without, with a deviation of {peaks.error_ratio:.1%}"
            )
    return tuple(dict.fromkeys(found))


def _check_nvme(job: Job, cluster: Cluster) -> None:
    """Raise unless the stack and all nodes of the cluster can offload to NVMe."""
    if job.stack is not Stack.DEEPSPEED:
        raise InputError(
            f"{job.stack.value} does not offload to NVMe",
            field="job.offload_to",
            value=job.offload_to.value,
            remedy="use stack deepspeed, or offload_to host",
        )
    for index, group in enumerate(cluster.node_groups):
        if group.nvme is None:
            raise InputError(
                "is not stated, and the job offloads to NVMe",
                field=f"cluster.node_groups.{index}.nvme",
                remedy="state capacity_bytes, read_bytes_per_second and write_bytes_per_second of "
                "a node, or use offload_to host",
            )


def _check_positions(sequence_length: int, graph: ModelGraph) -> None:
    if graph.is_measured and sequence_length > graph.maximum_sequence_length:
        raise InputError(
            f"exceeds the {graph.maximum_sequence_length} tokens that the model was traced with",
            field="job.sequence_length",
            value=sequence_length,
            remedy=f"use {graph.maximum_sequence_length}, or trace the model with longer inputs",
        )
    if graph.learned_position_count and sequence_length > graph.learned_position_count:
        raise InputError(
            f"exceeds the model's {graph.learned_position_count} learned positions",
            field="job.sequence_length",
            value=sequence_length,
            remedy=f"use at most {graph.learned_position_count}",
        )


def _default_batch(sequence_length: int, device_count: int) -> int:
    wanted = max(DEFAULT_TOKENS_PER_STEP // sequence_length, 1)
    return -(-wanted // device_count) * device_count
