"""Solvers that tests put in the planner's place: they answer at once, die, wait, or refuse."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from api.services.planner import Planner
from planner.errors import InputError
from planner.schema.cluster import Cluster
from planner.schema.job import Job
from planner.schema.plan import (
    Estimate,
    Infeasible,
    Overflow,
    Plan,
    Relaxation,
    ResolvedCluster,
    ResolvedJob,
    ResolvedModel,
)
from planner.schema.progress import Progress
from planner.schema.strategy import Strategy
from planner.schema.tuning import MeasuredCertificate, Tuning, TuningBudget
from planner.tuning.choice import Prospect
from planner.tuning.decision import Decision, Ended, NextTrial
from planner.tuning.knowledge import Candidate, degrees_of
from planner.units import GIB
from tests.builders import a_cluster, a_model, a_plan, a_prediction, a_strategy

Listener = Callable[[Progress], None] | None


def a_progress(phase: str = "search", **changes: Any) -> Progress:
    """Half of a hundred configurations are still open."""
    fields: dict[str, Any] = {
        "phase": phase,
        "configurations_total": 100,
        "open_count": 50,
        "milp_count": 1,
        "best_seconds": 1.0,
        "lower_bound_seconds": 0.5,
    }
    return Progress(**{**fields, **changes})


def plan_at_once(
    model: ResolvedModel, cluster: ResolvedCluster, job: Job, *, on_progress: Listener = None
) -> Plan | Infeasible:
    """Report once and return a plan; a job of one sequence is infeasible."""
    if on_progress is not None:
        on_progress(a_progress())
    if job.global_batch_size == 1:
        return an_infeasible(model=model, cluster=cluster, job=_resolved(job))
    identifier = request_id(model, cluster, job)
    return a_plan(id=identifier, model=model, cluster=cluster, job=_resolved(job))


def plan_dying(*_: Any, **__: Any) -> Plan:
    """Die as a process that the kernel kills for its memory does."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("outlived SIGKILL")


def plan_forever(*_: Any, on_progress: Listener = None, **__: Any) -> Plan:
    """Report once and never end."""
    if on_progress is not None:
        on_progress(a_progress())
    threading.Event().wait()
    raise AssertionError("waited for ever and beyond")


def plan_by_batch(
    model: ResolvedModel, cluster: ResolvedCluster, job: Job, *, on_progress: Listener = None
) -> Plan | Infeasible:
    """Do what the job's batch says: 13 dies, 17 never ends, 19 is refused, 23 breaks."""
    if job.global_batch_size == 13:
        return plan_dying()
    if job.global_batch_size == 17:
        return plan_forever(on_progress=on_progress)
    if job.global_batch_size == 19:
        raise InputError(
            "mixes device kinds", field="cluster.node_groups", value=2, remedy="plan each alone"
        )
    if job.global_batch_size == 23:
        raise RuntimeError("the secret inner workings broke")
    return plan_at_once(model, cluster, job, on_progress=on_progress)


def an_infeasible(**changes: Any) -> Infeasible:
    """No configuration fits; smaller batches would."""
    plan = a_plan()
    overflow = Overflow(
        description="tensor parallel 8",
        limit="device_memory",
        stage=0,
        required_bytes=100e9,
        capacity_bytes=80e9,
        reason="activations",
    )
    relaxation = Relaxation(
        field="job.sequence_length", given=128, needed=64, description="halve the sequences"
    )
    fields: dict[str, Any] = {
        "id": "infeasible-0123456789abcdef",
        "model": plan.model,
        "cluster": plan.cluster,
        "job": plan.job,
        "configurations_total": 7,
        "binding": (overflow,),
        "relaxations": (relaxation,),
        "planner_version": "0.1.0",
    }
    return Infeasible(**{**fields, **changes})


def estimate(
    model: ResolvedModel, cluster: ResolvedCluster, job: Job, strategy: Strategy
) -> Estimate:
    """Return the same price for every strategy that names eight ranks."""
    if strategy.world_size != cluster.resolved.device_count:
        raise InputError(
            "does not use every device",
            field="strategy",
            value=strategy.world_size,
            remedy=f"make the degrees multiply to {cluster.resolved.device_count}",
        )
    return Estimate(
        model=model,
        cluster=cluster,
        job=_resolved(job),
        strategy=strategy,
        prediction=a_prediction(),
        planner_version="0.1.0",
    )


TRIED = tuple(
    a_strategy(
        tensor_parallel_degree=tp, pipeline_parallel_degree=pp, data_parallel_shard_degree=dp
    )
    for tp, pp, dp in ((2, 2, 2), (4, 1, 2), (1, 4, 2), (2, 1, 4))
)


def new_tuning(
    model: ResolvedModel, cluster: ResolvedCluster, job: Job, budget: TuningBudget
) -> Tuning:
    """Return a tuning without trials."""
    return Tuning(
        model=model, cluster=cluster, job=_resolved(job), budget=budget, planner_version="0.1.0"
    )


def decide_by_count(tuning: Tuning) -> Decision:
    """Try one after another of a few strategies; a batch of 19 is refused, and one of 17 waits."""
    if tuning.job.resolved.global_batch_size == 19:
        raise InputError("is odd", field="job.global_batch_size", value=19, remedy="make it even")
    if tuning.job.resolved.global_batch_size == 17:
        threading.Event().wait()
    count, best = len(tuning.trials), tuning.best_index
    if count >= min(tuning.budget.runs, len(TRIED)):
        plan = None if best is None else _trial_plan(tuning, f"best-of-{count}", TRIED[best])
        return Ended(certificate=a_measured_certificate(tuning), best=plan)
    plan = _trial_plan(tuning, f"trial-{count + 1}", TRIED[count])
    prospect = Prospect(
        degrees=degrees_of(plan.strategy),
        step_seconds=plan.prediction.step_seconds,
        fits_probability=0.97,
    )
    candidate = Candidate(strategy=plan.strategy, prospect=prospect, peak_bytes=30.0 * GIB)
    optimistic_seconds = 0.5 + 0.1 * count
    return NextTrial(plan=plan, candidate=candidate, optimistic_seconds=optimistic_seconds)


def a_measured_certificate(tuning: Tuning) -> MeasuredCertificate:
    """No plan of a hundred is likely to be more than 2 % faster."""
    outcomes = [trial.outcome for trial in tuning.trials]
    return MeasuredCertificate(
        ended_by="runs",
        best_trial=None if tuning.best_index is None else tuning.best_index + 1,
        step_seconds=tuning.best_seconds,
        run_count=len(outcomes),
        out_of_memory_count=outcomes.count("out_of_memory"),
        failed_count=outcomes.count("failed"),
        configurations_total=100,
        lower_bound_seconds=0.9,
        optimistic_seconds=0.8,
        faster_ratio=None if tuning.best_seconds is None else 0.02,
    )


def _trial_plan(tuning: Tuning, name: str, strategy: Strategy) -> Plan:
    return a_plan(
        id=name, model=tuning.model, cluster=tuning.cluster, job=tuning.job, strategy=strategy
    )


def resolved_model(given: Any) -> ResolvedModel:
    """Know `tiny`, and model graphs."""
    if isinstance(given, str):
        if given != "tiny":
            raise InputError("is not a known model", field="model", value=given, remedy="use tiny")
        graph = a_model()
    else:
        graph = type(a_model()).from_fields(given, source="model")
    return ResolvedModel(given=given, resolved=graph, digest=graph.digest())


def resolved_cluster(given: Any) -> ResolvedCluster:
    """Know one cluster by name, and cluster documents."""
    if isinstance(given, str):
        if given != a_cluster().name:
            raise InputError(
                "is not a cluster", field="cluster", value=given, remedy="use 8xh100-sxm5-80gb"
            )
        cluster = a_cluster()
    else:
        cluster = Cluster.from_fields(given, source="cluster")
    return ResolvedCluster(given=given, resolved=cluster, digest=cluster.digest())


def request_id(model: ResolvedModel, cluster: ResolvedCluster, job: Job) -> str:
    """Return what equal requests share."""
    return f"plan-{job.digest()[:8]}{model.digest[:4]}{cluster.digest[:4]}"


def a_planner(**changes: Any) -> Planner:
    """A planner whose solver does as the batch says."""
    fields: dict[str, Any] = {
        "resolved_model": resolved_model,
        "resolved_cluster": resolved_cluster,
        "request_id": request_id,
        "plan": plan_by_batch,
        "estimate": estimate,
        "new_tuning": new_tuning,
        "decide": decide_by_count,
        "model_names": lambda: ("tiny",),
        "device_names": lambda: ("h100-sxm5-80gb",),
    }
    return Planner(**{**fields, **changes})


def _resolved(job: Job) -> ResolvedJob:
    return ResolvedJob(given=job.model_dump(mode="json"), resolved=job, digest=job.digest())
