"""Bound record: a plan's lower bound evaluated again, without the search that proved it.

All configurations of the request are listed anew, and each is bounded by prices of memory alone
(`planner.proof.duality`). Those that this does not reach are named in the record with the engine
that bounded them, and taken on trust; any other that is not bounded refutes the record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from planner.cost.configuration import Configuration
from planner.errors import InputError, VerificationError
from planner.hardware import cluster_hardware
from planner.proof.duality import Space, Verdicts, space_of, verdicts
from planner.schema.bound_record import (
    BoundEngine,
    BoundRecord,
    ConfigurationDegrees,
    TrustedBound,
)
from planner.schema.job import Job, Objective
from planner.schema.plan import Certificate, Plan
from planner.space.frameworks import framework_limits
from planner.units import counted
from planner.workload.model import model_workload

_PRICE_RATIOS = np.geomspace(0.003, 10.0, 12)
"""Prices of a byte that are tried, in bounds of the step per device's memory."""
_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundCheck:
    """How many configurations have no plan that fits, how many none below the bound.

    `trusted` are the others, by engine.
    """

    lower_bound_seconds: float
    configurations_total: int
    infeasible: int
    bounded: int
    trusted: Mapping[BoundEngine, int]


def check_recordable(job: Job) -> None:
    """Raise where a job's bound is none of all steps of its space.

    Raises:
        InputError: if the objective is not throughput.
    """
    if job.objective is not Objective.THROUGHPUT:
        raise InputError(
            "has a bound that is not recorded: it is one of several searches",
            field="job.objective",
            value=job.objective.value,
            remedy="plan for throughput",
        )


def recorded(plan: Plan, engines: Mapping[Configuration, BoundEngine]) -> BoundRecord:
    """Return by what the plan's bound holds; `engines` says what bounded some configurations.

    Raises:
        InputError: if the plan's objective is not throughput.
    """
    check_recordable(plan.job.resolved)
    bound = _closed_form_bound(plan)
    kinds = cluster_hardware(plan.cluster.resolved).kinds
    scale = bound / max(kind.device_memory_bytes for kind in kinds)
    prices = tuple((scale * _PRICE_RATIOS).tolist())
    return BoundRecord(
        plan_id=plan.id,
        lower_bound_seconds=bound,
        memory_prices_seconds_per_byte=prices,
        trusted=tuple(
            TrustedBound(
                engine=engines.get(each, BoundEngine.OTHER),
                part=part,
                configuration=ConfigurationDegrees(**asdict(each)),
            )
            for part, space in enumerate(_spaces(plan))
            for each in _left(space, verdicts(space, bound_seconds=bound, prices=prices))
        ),
    )


def check_record(plan: Plan, record: BoundRecord) -> BoundCheck:
    """Return how the plan's bound holds; `planner.proof.verify` is for the rest of the plan.

    Raises:
        InputError: if the plan's objective is not throughput.
        VerificationError: if the bound does not hold by what is recorded, naming every difference.
    """
    check_recordable(plan.job.resolved)
    bound, said = _closed_form_bound(plan), plan.certificate
    trust = {(each.part, _configuration(each)): each.engine for each in record.trusted}
    total, infeasible, bounded = 0, 0, 0
    trusted: Counter[BoundEngine] = Counter()
    refuted: list[Configuration] = []
    for part, space in enumerate(_spaces(plan)):
        found = verdicts(space, bound_seconds=bound, prices=record.memory_prices_seconds_per_byte)
        total += len(space.configurations)
        infeasible += int(found.is_infeasible.sum())
        bounded += int(found.is_bounded.sum())
        for each in _left(space, found):
            if (part, each) in trust:
                trusted[trust[part, each]] += 1
            else:
                refuted.append(each)
    differences = [*_of_another(plan, record), *_unbounded(refuted)]
    if total != said.configurations_total:
        differences.append(
            f"certificate.configurations_total says {said.configurations_total}, the request has "
            f"{total}"
        )
    differences += _overtrusted(trusted, said)
    if differences:
        raise VerificationError(f"plan {plan.id}: " + "; ".join(differences))
    return BoundCheck(
        lower_bound_seconds=bound,
        configurations_total=total,
        infeasible=infeasible,
        bounded=bounded,
        trusted={engine: count for engine, count in sorted(trusted.items()) if count},
    )


def _closed_form_bound(plan: Plan) -> float:
    """Return what the search has proven, which compares steps by their closed form."""
    said = plan.certificate
    closed = said.closed_form
    return said.lower_bound_seconds if closed is None else closed.lower_bound_seconds


def _spaces(plan: Plan) -> Iterator[Space]:
    """Yield the parts of the request's space, listed anew."""
    graph, job = plan.model.resolved, plan.job.resolved
    workload, hardware = model_workload(graph), cluster_hardware(plan.cluster.resolved)
    for limits in framework_limits(job, graph):
        own = job.model_copy(update={"limits": limits})
        yield space_of(graph, workload, hardware, own)


def _left(space: Space, found: Verdicts) -> Iterator[Configuration]:
    """Yield the configurations that prices of memory say nothing of."""
    for index in np.flatnonzero(~(found.is_infeasible | found.is_bounded)).tolist():
        yield space.configurations.row(index)


def _configuration(trusted: TrustedBound) -> Configuration:
    return Configuration(**dict(trusted.configuration))


def _of_another(plan: Plan, record: BoundRecord) -> list[str]:
    """Return what says that a record is another plan's."""
    differences = []
    if record.plan_id != plan.id:
        differences.append(f"the record is of {record.plan_id}")
    bound = _closed_form_bound(plan)
    if record.lower_bound_seconds != bound:
        differences.append(
            f"the record says lower_bound_seconds {record.lower_bound_seconds!r}, the certificate "
            f"{bound!r}"
        )
    return differences


def _overtrusted(trusted: Counter[BoundEngine], said: Certificate) -> list[str]:
    """Return which engines are trusted with more than the certificate says they had."""
    had = {
        BoundEngine.BRANCH_AND_BOUND: said.configurations_branched,
        BoundEngine.INTEGER_PROGRAM: said.configurations_programmed,
    }
    return [
        f"{counted(trusted[engine], 'configuration')} are trusted to the {engine}, which the "
        f"certificate says had {most}"
        for engine, most in had.items()
        if trusted[engine] > most
    ]


def _unbounded(refuted: Sequence[Configuration]) -> list[str]:
    """Return which configurations are neither bounded nor trusted to an engine."""
    if not refuted:
        return []
    named = "; ".join(
        f"tensor {c.tensor_parallel_degree} x pipeline {c.pipeline_parallel_degree} x context "
        f"{c.context_parallel_degree} x shard {c.data_parallel_shard_degree} x replicate "
        f"{c.data_parallel_replicate_degree}, {c.pipeline_schedule.value}, "
        f"{c.micro_batch_count} micro-batches"
        for c in refuted[:_NAMED]
    )
    more = f"; {len(refuted) - _NAMED} more" if len(refuted) > _NAMED else ""
    unbounded = counted(len(refuted), "configuration")
    return [f"the bound does not hold for {unbounded} without a recorded engine ({named}{more})"]
