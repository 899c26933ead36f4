"""Formats: which tool's output a text is, and the cluster that it describes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from planner.errors import DocumentError, InputError
from planner.importers.cluster.amd_smi import AMD_MARK, ROCM_MARK
from planner.importers.cluster.discovered import Discovered, text_of
from planner.importers.cluster.nvidia_smi_tables import CSV_MARK, PLAIN_MARK
from planner.schema.document import parse_fields

ClusterFormat = Literal[
    "nvidia-smi",
    "amd-smi",
    "slurm",
    "kubernetes",
    "nccl-topology",
    "nccl-tests",
    "skypilot",
    "ray",
]
FORMATS: tuple[str, ...] = get_args(ClusterFormat)

_MARKS: tuple[tuple[ClusterFormat, str], ...] = (
    (
        "slurm",
        r"(?i)^[ \t]*(NodeName|SwitchName|BlockName)=|\A\s*\{[^{}]*\"(meta|nodes|sinfo)\"\s*:",
    ),
    ("nccl-topology", r"\A\s*(<\?xml[^>]*>\s*)?(<!--[^>]{0,4096}-->\s*)?<(!DOCTYPE|system\b)"),
    ("nccl-tests", r"^#\s+Rank\s+[0-9]+\s|^#.*\bnccl-tests\b|\"nccl_version\"\s*:"),
    ("ray", r"^available_node_types:"),
    ("skypilot", r"^resources:\s*(?:\{|#|$)"),
    ("amd-smi", rf"{ROCM_MARK}|{AMD_MARK}"),
    ("kubernetes", r"\"kind\"\s*:\s*\"(List|NodeList|Node)\"|^kind:\s*(List|NodeList|Node)\s*$"),
    (
        "nvidia-smi",
        rf"^\s*GPU[0-9]+\s|^\s*GPU [0-9]+: .*\(UUID:|{PLAIN_MARK}|{CSV_MARK}",
    ),
)
_BY_INSTANCE = "name nodes by their instance type, as in 2xp5.48xlarge, or write a cluster document"
_BY_COUNT = "write it as nodes x devices, as in 2x8xh100-sxm5-80gb, or give `nvidia-smi topo -m`"
# Files that describe machines, and that are not read: what they are, their mark, what to give.
_NOT_READ: tuple[tuple[str, str, str], ...] = (
    (
        "Terraform",
        r"^\s*(resource|module|variable|terraform|provider)\b[^\n]{0,200}\{",
        _BY_INSTANCE,
    ),
    ("an AWS ParallelCluster configuration", r"^\s*SlurmQueues:|^Scheduling:\s*$", _BY_INSTANCE),
    ("an eksctl configuration", r"^\s*kind:\s*ClusterConfig\b", _BY_INSTANCE),
    ("a CloudFormation template", r"AWSTemplateFormatVersion|\"?Type\"?:\s*\"?AWS::", _BY_INSTANCE),
    ("a dstack configuration", r"^type:\s*(fleet|task|dev-environment)\s*$", _BY_INSTANCE),
    ("a DeepSpeed or MPI hostfile", r"^\s*[\w.-]+\s+slots\s*=\s*\d+", _BY_COUNT),
    (
        "a table of sinfo or squeue",
        r"^\s*PARTITION\s+AVAIL|^\s*JOBID\s+PARTITION|^\s*NODELIST\s+NODES",
        "give `scontrol show nodes`, or `sinfo --json`",
    ),
    (
        "a script of sbatch",
        r"^#SBATCH\s",
        "give `scontrol show nodes`: the script says what it asks for, not what nodes have",
    ),
    (
        "a Kubernetes manifest of another kind than nodes",
        r"^apiVersion:|\"apiVersion\"\s*:",
        "give `kubectl get nodes -o json`",
    ),
    ("lspci, lscpu or ibstat", r"^Architecture:|^CA '|^[0-9a-f:.]{7,12} (VGA|3D)", _BY_COUNT),
    (
        "a table of links' states",
        r"^\s*Link \d+: [\d.<>]+",
        "give `nvidia-smi topo -m`",
    ),
)
_HEAD = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a user adds to an output that does not say it."""

    device: str | None = None
    node_count: int = 1
    devices_per_node: int | None = None


def format_of(text: str, *, source: str) -> ClusterFormat:
    """Return which tool's output `text` is.

    Raises:
        InputError: if it looks like none of them.
    """
    for name, mark in _MARKS:
        if re.search(mark, text[:_HEAD], re.MULTILINE):
            return name
    refuse_look_alike(text, source=source)
    raise InputError(
        "is not an output that is known",
        field=source,
        value=text.strip()[:60],
        remedy=f"say what it is with --format: {', '.join(FORMATS)}",
    )


def refuse_look_alike(text: str, *, source: str) -> None:
    """Raise if the text looks like one of the files that describe machines and are not read.

    Raises:
        InputError: naming what it looks like, and what to give.
    """
    for title, mark, remedy in _NOT_READ:
        if re.search(mark, text[:_HEAD], re.MULTILINE):
            raise InputError(
                f"looks like {title}, which is not read",
                field=source,
                value=text.strip()[:60],
                remedy=remedy,
            )


def cluster_from_output(
    content: bytes, *, source: str, form: ClusterFormat | None = None, told: Told | None = None
) -> Discovered:
    """Return the cluster that a tool's output describes, without what nccl-tests measured.

    Raises:
        InputError: naming what cannot be read, or what must be told.
    """
    text, told = text_of(content, source=source), told or Told()
    form = form or format_of(text, source=source)
    name = source.rsplit("/", maxsplit=1)[-1][:100] or "cluster"
    if form == "slurm":
        return slurm(text, name, told)
    if form == "kubernetes":
        return kubernetes(text, name, told)
    if form == "nvidia-smi":
        from planner.importers.cluster.nvidia_smi import cluster_from_matrix  # noqa: PLC0415

        return cluster_from_matrix(
            text, source=name, device=told.device, node_count=told.node_count
        )
    if form in {"skypilot", "ray"}:
        return job_cluster(parse_fields(text.encode(), source=name, yaml_allowed=True), name)
    if form == "amd-smi":
        from planner.importers.cluster.amd_smi import cluster_from_amd  # noqa: PLC0415

        return cluster_from_amd(text, source=name, device=told.device, node_count=told.node_count)
    if form == "nccl-topology":
        from planner.importers.cluster.nccl_topology import cluster_from_nccl_topology  # noqa: PLC0415

        return cluster_from_nccl_topology(
            text, source=name, device=told.device, node_count=told.node_count
        )
    raise InputError(
        "is a table of measurements, not of nodes",
        field=source,
        remedy="run `meshwright discover --from FILE` on it, and plan for the file that it writes",
    )


def slurm(text: str, name: str, told: Told) -> Discovered:
    """Return the cluster of Slurm's records."""
    if text.lstrip().startswith("{"):
        from planner.importers.cluster.slurm_json import cluster_from_slurm_json  # noqa: PLC0415

        return cluster_from_slurm_json(_json(text, name), source=name, device=told.device)
    from planner.importers.cluster.slurm import cluster_from_slurm  # noqa: PLC0415

    return cluster_from_slurm(
        text, source=name, device=told.device, devices_per_node=told.devices_per_node
    )


def job_cluster(fields: Mapping[str, Any], name: str) -> Discovered:
    """Return the cluster that a task of SkyPilot's or a cluster of Ray's asks for.

    Raises:
        DocumentError: if the fields are neither.
    """
    from planner.importers.cluster import job_clusters  # noqa: PLC0415

    if job_clusters.is_ray(fields):
        return job_clusters.cluster_from_ray(fields, source=name)
    if job_clusters.is_skypilot(fields):
        return job_clusters.cluster_from_skypilot(fields, source=name)
    raise DocumentError(
        "is not a task of SkyPilot's with accelerators, and no cluster of Ray's",
        field=name,
        remedy="give the file with resources.accelerators, or with available_node_types",
    )


def kubernetes(text: str, name: str, told: Told) -> Discovered:
    """Return the cluster of Kubernetes nodes, listed in JSON or YAML."""
    from planner.importers.cluster.kubernetes import cluster_from_kubernetes  # noqa: PLC0415

    if text.lstrip().startswith("{"):
        fields = _json(text, name)
    else:
        fields = parse_fields(text.encode(), source=name, yaml_allowed=True)
    return cluster_from_kubernetes(fields, source=name, device=told.device)


def _json(text: str, name: str) -> Mapping[str, Any]:
    """Return the object in `text`, which may be larger than a document: nodes say much else."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise DocumentError(
            "is not valid JSON of an object", field=name, remedy="is the file complete?"
        )
    return fields
