"""Between rows and what is shown of them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Row

from api.schemas import OperationEvent
from api.tables import SORTED_FIGURES, OperationEventRow, OperationRow, PlanRow
from planner.answers.explain import describe_strategy
from planner.schema.plan import Infeasible, Plan
from planner.schema.service import Operation, OperationState, PlanLabels, PlanSummary, Problem

_ANSWER: TypeAdapter[Plan | Infeasible] = TypeAdapter(Plan | Infeasible)
_NAME_LENGTH_LIMIT = 200
_REMEMBERED_COUNT = 64
_REMEMBERED_LENGTH = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """An answer as it is kept: `document_json` is what clients get, byte for byte.

    Its labels are no part of it: they change, and it does not.
    """

    id: str
    etag: str
    document_json: str
    summary_json: str = field(compare=False)
    notes: str = field(compare=False)

    @property
    def labels(self) -> PlanLabels:
        """Return the name, notes and tags."""
        summary = PlanSummary.model_validate_json(self.summary_json)
        return PlanLabels(name=summary.name, notes=self.notes, tags=summary.tags)

    @property
    def owner(self) -> str | None:
        """Return who asked for it first."""
        return PlanSummary.model_validate_json(self.summary_json).owner

    @property
    def answer(self) -> Plan | Infeasible:
        """Return the document, read; one that is asked for again and again is read once."""
        if len(self.document_json) > _REMEMBERED_LENGTH:
            return _ANSWER.validate_json(self.document_json)
        return _remembered(self.document_json)


@lru_cache(maxsize=_REMEMBERED_COUNT)
def _remembered(document_json: str) -> Plan | Infeasible:
    return _ANSWER.validate_json(document_json)


def stored_plan(row: PlanRow | Row[*tuple[Any, ...]]) -> StoredPlan:
    """Return what a row of plans holds."""
    return StoredPlan(
        id=row.id,
        etag=f'"{row.etag}"',
        document_json=row.document,
        summary_json=row.summary,
        notes=row.notes,
    )


def label(row: PlanRow, labels: PlanLabels) -> None:
    """Have the row hold `labels`, and be found by their words."""
    changed = {"name": labels.name, "tags": labels.tags}
    summary = summary_of(row).model_copy(update=changed)
    row.summary, row.notes = summary.model_dump_json(), labels.notes
    row.searched_text = _searched_text(summary, labels.notes)
    row.sorted_name = _sorted_name(summary)


def labels_tag(labels: PlanLabels) -> str:
    """Return the entity tag of `labels`."""
    return f'"{hashlib.sha256(labels.model_dump_json().encode()).hexdigest()}"'


def plan_row(
    answer: Plan | Infeasible, *, request_digest: str, owner: str | None = None
) -> PlanRow:
    """Return the row that keeps `answer` for `owner`."""
    created_at = datetime.now(UTC)
    document = answer.model_dump_json()
    summary = _summary(answer, created_at=created_at, owner=owner)
    return PlanRow(
        id=answer.id,
        request_digest=request_digest,
        status=answer.status,
        model_name=column_text(summary.model),
        cluster_name=column_text(summary.cluster),
        created_at=created_at,
        etag=hashlib.sha256(document.encode()).hexdigest(),
        searched_text=_searched_text(summary),
        sorted_name=_sorted_name(summary),
        notes="",
        **{name: getattr(summary, name) for name in SORTED_FIGURES},
        summary=summary.model_dump_json(),
        document=document,
    )


def column_text(name: str) -> str:
    """Return `name` as every database can keep and compare it."""
    return _without_nul(name)[:_NAME_LENGTH_LIMIT]


def summary_of(row: PlanRow) -> PlanSummary:
    """Return the line of the list that stands for the row."""
    return PlanSummary.model_validate_json(row.summary)


def title_of(summary: PlanSummary) -> str:
    """Return what people call the plan, else what it is a plan of."""
    return summary.name or f"{summary.model} on {summary.cluster}"


def operation_of(row: OperationRow) -> Operation:
    """Return what a row of operations says."""
    return Operation(
        id=row.id,
        state=OperationState(row.state),
        created_at=row.created_at,
        finished_at=row.finished_at,
        progress=None if row.progress is None else json.loads(row.progress),
        plan_id=row.plan_id,
        problem=None if row.problem is None else Problem.model_validate_json(row.problem),
    )


def event_of(row: OperationEventRow) -> OperationEvent:
    """Return what a row of events says."""
    return OperationEvent.model_validate({"number": row.number, "kind": row.kind, "data": row.data})


def _searched_text(summary: PlanSummary, notes: str = "") -> str:
    """Return the texts in which words are searched, in lower case, one a line."""
    names = (summary.model, summary.cluster, summary.strategy or "", summary.id)
    labels = (summary.name or "", *summary.tags, notes, summary.owner or "")
    return _without_nul("\n".join((*names, *labels))).lower()


def _sorted_name(summary: PlanSummary) -> str:
    """Return what the list of plans shows first, in one case."""
    return column_text((summary.name or summary.model).casefold())


def _without_nul(text: str) -> str:
    """Return `text` without the character that PostgreSQL refuses."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _summary(answer: Plan | Infeasible, *, created_at: datetime, owner: str | None) -> PlanSummary:
    job = answer.job.resolved
    summary = PlanSummary(
        id=answer.id,
        status=answer.status,
        model=answer.model.resolved.name,
        cluster=answer.cluster.resolved.name,
        device_count=answer.cluster.resolved.device_count,
        global_batch_size=job.global_batch_size,
        sequence_length=job.sequence_length,
        created_at=created_at,
        owner=owner,
    )
    if isinstance(answer, Infeasible):
        return summary
    prediction, certificate = answer.prediction, answer.certificate
    fullest = max(prediction.stages, key=lambda stage: stage.peak_memory_bytes)
    return summary.model_copy(
        update={
            "step_seconds": prediction.step_seconds.p50,
            "step_seconds_p10": prediction.step_seconds.p10,
            "step_seconds_p90": prediction.step_seconds.p90,
            "tokens_per_second_per_device": prediction.tokens_per_second_per_device,
            "model_flop_utilization": prediction.model_flop_utilization,
            "cost_per_million_tokens": prediction.cost_per_million_tokens,
            "strategy": describe_strategy(answer.strategy),
            "peak_memory_bytes": fullest.peak_memory_bytes,
            "capacity_bytes": fullest.capacity_bytes,
            "certificate_status": certificate.status,
            "gap_ratio": certificate.gap_ratio,
        }
    )
