"""What the page of an infeasible answer shows: what binds, by how much, and what would help."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from pydantic import JsonValue

from api.dashboard.quantities import memory, words
from api.dashboard.submission import DEFAULTS, values_of
from planner.importers.cluster.cloud_instances import cloud_instance
from planner.schema.cluster import Cluster
from planner.schema.plan import Infeasible, Overflow, Relaxation
from planner.schema.yaml_text import to_yaml

_SHOWN_COUNT = 20
_FORM_FIELDS = {
    "job.sequence_length": "sequence_length",
    "job.optimizer": "optimizer",
    "job.global_batch_size": "global_batch_size",
}
_FORM_PERCENTAGES = {
    "job.limits.memory_headroom_ratio": "memory_headroom_percent",
    "job.limits.fits_probability": "fits_percent",
}
_GROUPS = "cluster.node_groups."
_NODE_COUNT, _DEVICE = f"{_GROUPS}0.node_count", f"{_GROUPS}0.device"
_URL_LENGTH_LIMIT = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingRow:
    """The least that a family of configurations needs, beside what there is."""

    configurations: str
    limit: str
    stage: str
    needs: str
    has: str
    excess: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Help:
    """A change that was checked; `url` opens the form with it made, where the form can say it."""

    description: str
    field: str
    given: str
    needed: str
    url: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InfeasibleView:
    """An infeasible answer, arranged for its page; the nearest misses come first."""

    answer: Infeasible
    closest: BindingRow | None
    rows: tuple[BindingRow, ...]
    hidden_count: int
    helps: tuple[Help, ...]


def infeasible_view(answer: Infeasible) -> InfeasibleView:
    """Return `answer` arranged for its page."""
    rows = tuple(_row(item) for item in sorted(answer.binding, key=_excess_ratio))
    return InfeasibleView(
        answer=answer,
        closest=rows[0] if rows and rows[0].excess else None,
        rows=rows[:_SHOWN_COUNT],
        hidden_count=max(len(rows) - _SHOWN_COUNT, 0),
        helps=tuple(_helps(answer)),
    )


def _excess_ratio(item: Overflow) -> float:
    if item.required_bytes is None or not item.capacity_bytes:
        return float("inf")
    return item.required_bytes / item.capacity_bytes


def _row(item: Overflow) -> BindingRow:
    ratio = _excess_ratio(item)
    return BindingRow(
        configurations=item.description,
        limit=words(item.limit),
        stage="" if item.stage is None else str(item.stage),
        needs="" if item.required_bytes is None else memory(item.required_bytes),
        has="" if item.capacity_bytes is None else memory(item.capacity_bytes),
        excess="" if ratio == float("inf") else f"{ratio:.2f} times",
        reason=item.reason,
    )


def _helps(answer: Infeasible) -> Iterator[Help]:
    for change in answer.relaxations:
        yield Help(
            description=change.description[:1].upper() + change.description[1:],
            field=change.field,
            given=_spelled(change.field, change.given),
            needed=_spelled(change.field, change.needed),
            url=_form_url(answer, change),
        )


def _spelled(field: str, value: JsonValue) -> str:
    if isinstance(value, int | float) and field.endswith("_bytes"):
        return memory(value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {part}" for name, part in value.items())
    return str(value)


def _form_url(answer: Infeasible, change: Relaxation) -> str | None:
    """Return a link to the form with the change made, all else as it was resolved."""
    job = answer.job.resolved
    values = values_of(answer)
    values["global_batch_size"] = str(job.global_batch_size or "")
    values["sequence_length"] = str(job.sequence_length or "")
    if not _make(values, change, answer.cluster.resolved):
        return None
    changed = {name: value for name, value in values.items() if value != DEFAULTS[name]}
    url = f"/plans/new?{urlencode(changed)}"
    return url if len(url) <= _URL_LENGTH_LIMIT else None


def _make(values: dict[str, str], change: Relaxation, cluster: Cluster) -> bool:
    """Make the change in the form's values; return whether the form can say it."""
    degree = change.field.removeprefix("job.limits.").removesuffix("_degree")
    if change.field in _FORM_FIELDS:
        values[_FORM_FIELDS[change.field]] = str(change.needed)
    elif change.field in _FORM_PERCENTAGES and isinstance(change.needed, float):
        values[_FORM_PERCENTAGES[change.field]] = f"{change.needed * 100:g}"
    elif change.field == _NODE_COUNT and values["cluster_source"] == "short":
        group = cluster.node_groups[0]
        devices = f"{group.devices_per_node}x{group.device}"
        node = group.name if cloud_instance(group.name) else devices
        values["cluster_short"] = f"{change.needed}x{node}"
    elif change.field == _DEVICE and values["cluster_source"] == "short":
        group = cluster.node_groups[0]
        values["cluster_short"] = f"{group.node_count}x{group.devices_per_node}x{change.needed}"
    elif change.field.startswith(_GROUPS):
        values["cluster_source"] = "document"
        values["cluster_document"] = to_yaml(_with_change(cluster, change))
    elif f"{degree}_min" in values:
        values[f"{degree}_min"] = values[f"{degree}_max"] = ""
    else:
        return False
    return True


def _with_change(cluster: Cluster, change: Relaxation) -> dict[str, Any]:
    """Return the cluster's document with a field of a group changed; another device has its own."""
    fields = cluster.model_dump(mode="json", exclude_defaults=True)
    index, name = change.field.removeprefix(_GROUPS).split(".")
    group = fields["node_groups"][int(index)]
    if name == "device":
        group.pop("memory_bytes", None)
        group.pop("price_per_device_hour", None)
    group[name] = change.needed
    return fields
