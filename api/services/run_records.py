"""Between rows of runs and leases and what is shown of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from api.tables import LeaseRow, RunEventRow, RunPlanRow, RunRow
from planner.schema.agent import Intervals
from planner.schema.lease import Lease, LeaseProgress
from planner.schema.lifecycle import LeaseState, RunState
from planner.schema.plan import Plan
from planner.schema.run import PredictedRun, Run, RunEvent, RunLease


def lease_document(lease: LeaseRow, run: RunRow, plan: RunPlanRow, intervals: Intervals) -> Lease:
    """Return what an agent is told of its lease."""
    return Lease(
        id=lease.id,
        run_id=run.id,
        epoch=lease.epoch,
        attempt=lease.epoch,
        state=LeaseState(lease.state),
        plan=Plan.model_validate_json(plan.document),
        command=run.command,
        arguments=json.loads(run.arguments),
        node_rank=lease.node_rank,
        node_count=lease.node_count,
        node_span=lease.node_span,
        ranks=ranks_of(lease),
        master_address=run.master_address or "",
        master_port=run.master_port or 0,
        checkpoint_folder=run.id,
        resume=lease.epoch > 1,
        intervals=intervals,
    )


def run_document(run: RunRow, leases: Sequence[LeaseRow], names: Mapping[str, str]) -> Run:
    """Return the run with the leases of its epoch; `names` are the agents', by id."""
    shown = tuple(_run_lease(lease, names) for lease in leases)
    steps = [lease.step for lease in leases if lease.step is not None]
    saved = [lease.checkpoint_step for lease in leases if lease.checkpoint_step is not None]
    return Run(
        id=run.id,
        state=RunState(run.state),
        plan_id=run.plan_id,
        first_plan_id=run.first_plan_id,
        command=run.command,
        arguments=json.loads(run.arguments),
        restart_limit=run.restart_limit,
        restart_count=run.restart_count,
        replan=run.replan,
        epoch=run.epoch,
        attempt=run.epoch,
        cancel_requested=run.cancel_requested,
        created_at=run.created_at,
        started_at=run.started_at,
        finished_at=run.finished_at,
        reason=run.reason,
        waiting_for=run.waiting_for,
        step=max(steps, default=run.step),
        checkpoint_step=max(saved, default=run.checkpoint_step),
        operation_id=run.operation_id,
        leases=shown,
    )


def event_document(row: RunEventRow) -> RunEvent:
    """Return an entry of a run's history."""
    return RunEvent.model_validate_json(row.data)


def predicted_run(row: RunPlanRow) -> PredictedRun:
    """Return what a plan that a run followed predicts; ranks lie along the pipeline."""
    plan = Plan.model_validate_json(row.document)
    prediction, strategy = plan.prediction, plan.strategy
    per_stage = strategy.world_size // len(prediction.stages)
    peaks = [stage.peak_memory_bytes for stage in prediction.stages for _ in range(per_stage)]
    return PredictedRun(
        plan_id=row.plan_id,
        from_attempt=row.from_epoch,
        step_seconds=prediction.step_seconds,
        tokens_per_second=prediction.tokens_per_second_per_device * strategy.world_size,
        peak_memory_bytes=tuple(peaks),
    )


def ranks_of(lease: LeaseRow) -> tuple[int, ...]:
    """Return the ranks that the lease's agent starts."""
    return tuple(range(lease.first_rank, lease.first_rank + lease.rank_count))


def _run_lease(lease: LeaseRow, names: Mapping[str, str]) -> RunLease:
    return RunLease(
        lease_id=lease.id,
        agent_id=lease.agent_id,
        agent_name=names.get(lease.agent_id, lease.agent_id),
        node_rank=lease.node_rank,
        ranks=ranks_of(lease),
        state=LeaseState(lease.state),
        progress=LeaseProgress(step=lease.step, checkpoint_step=lease.checkpoint_step),
        reason=lease.reason,
    )
