"""A pipeline's simulated step in the trace event format, which chrome://tracing and Perfetto read.

Complete events (`ph: X`) with times in microseconds: one process for the pipeline, one thread a
stage, bubbles included.

Source of the format: the Trace Event Format document of the Chromium project.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from api.dashboard.palette import BUBBLE
from api.dashboard.timeline import Gap, gaps, part_of, step_spans
from planner.cost.simulation import Span
from planner.schema.plan import Plan

_SPAN_LIMIT = 20_000
_MICROSECONDS = 1e6


def chrome_trace(plan: Plan) -> dict[str, Any]:
    """Return the step of the plan's pipeline; of very long ones whole rounds are left out."""
    found = step_spans(plan, span_limit=_SPAN_LIMIT)
    actions = [_event(span, part_of(span).label, _arguments(span)) for span in found.spans]
    bubbles = [_event(gap, BUBBLE.label, {}) for gap in gaps(found.spans)]
    return {
        "displayTimeUnit": "ms",
        "traceEvents": [*_names(plan), *actions, *bubbles],
        "otherData": {
            "plan_id": plan.id,
            "planner_version": plan.planner_version,
            "micro_batch_count": found.micro_batch_count,
            "shown_micro_batch_count": found.shown_count,
        },
    }


def _names(plan: Plan) -> Iterator[dict[str, Any]]:
    yield _metadata("process_name", thread=0, name=f"{plan.id}, simulated")
    for stage in range(plan.strategy.pipeline_parallel_degree):
        yield _metadata("thread_name", thread=stage, name=f"stage {stage}")


def _metadata(kind: str, *, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": 0, "tid": thread, "args": {"name": name}}


def _event(span: Span | Gap, name: str, arguments: dict[str, int]) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "cat": "bubble" if isinstance(span, Gap) else "action",
        "pid": 0,
        "tid": span.rank,
        "ts": span.start_seconds * _MICROSECONDS,
        "dur": (span.end_seconds - span.start_seconds) * _MICROSECONDS,
        "args": arguments,
    }


def _arguments(span: Span) -> dict[str, int]:
    return {
        "micro_batch": span.action.micro_batch,
        "virtual_stage": span.action.virtual_stage,
    }
