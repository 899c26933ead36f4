"""Planning: a model, a cluster and a job in; a proven plan, or why there is none, out.

The cost model and the search are imported by the first call that needs them: whoever imports this
to read a request, or to ask for help, does not wait for them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from planner.answers.chance_words import room_words
from planner.answers.warnings import answer_warnings
from planner.errors import InputError
from planner.requests.resolution import (
    Request,
    resolved_cluster,
    resolved_model,
    resolved_request,
)
from planner.schema.bound_record import BoundEngine, BoundRecord
from planner.schema.job import Job, Limits
from planner.schema.plan import (
    Estimate,
    Infeasible,
    Overflow,
    Plan,
    Prediction,
    ResolvedCluster,
    ResolvedModel,
)
from planner.schema.strategy import Strategy
from planner.units import counted
from planner.version import planner_version

if TYPE_CHECKING:
    from planner.answers.finalists import Settled
    from planner.cost.configuration import Configuration
    from planner.ilp.problem import NotFound, Shortfall
    from planner.ilp.search import ProgressCallback
    from planner.requests.inquiry import Inquiry

_ASKED_SHARE_RATIO = 0.985
"""Of a job's time for searches; in the rest the plan is explained, and priced again."""
_ESTIMATED_AT_ONCE = 256

__all__ = [
    "estimate",
    "estimates",
    "plan",
    "plan_with_record",
    "request_id",
    "resolved_cluster",
    "resolved_model",
]


def plan(
    model: ResolvedModel,
    cluster: ResolvedCluster,
    job: Job,
    *,
    on_progress: ProgressCallback | None = None,
) -> Plan | Infeasible:
    """Return the best plan of the job's space with its certificate, or what would make one fit.

    What is best is the job's objective; where a part of the cluster is better at it than the whole,
    the plan is for that part. All of it keeps `job.limits.solver_seconds`.

    Raises:
        InputError: if model, cluster and job do not go together.
        SolverError: if the solver fails.
        VerificationError: if the plan does not survive its own recomputation.
    """
    answer = _answer(model, cluster, job, on_progress=on_progress)
    return answer if isinstance(answer, Infeasible) else answer[0]


def plan_with_record(
    model: ResolvedModel,
    cluster: ResolvedCluster,
    job: Job,
    *,
    on_progress: ProgressCallback | None = None,
) -> tuple[Plan, BoundRecord] | Infeasible:
    """Return the same with what `planner.proof.bound_record` evaluates the plan's lower bound by.

    The record comes after the search, and its seconds are none of the job's limit.

    Raises:
        InputError: if model, cluster and job do not go together, or the objective is another than
            throughput.
        SolverError: if the solver fails.
        VerificationError: if the plan does not survive its own recomputation.
    """
    from planner.proof.bound_record import check_recordable, recorded  # noqa: PLC0415

    check_recordable(job)
    answer = _answer(model, cluster, job, on_progress=on_progress)
    if isinstance(answer, Infeasible):
        return answer
    planned, engines = answer
    return planned, recorded(planned, engines)


def _answer(
    model: ResolvedModel,
    cluster: ResolvedCluster,
    job: Job,
    *,
    on_progress: ProgressCallback | None,
) -> tuple[Plan, Mapping[Configuration, BoundEngine]] | Infeasible:
    """Return the best plan, and the engines that bounded some configurations."""
    from planner.answers.finalists import settled  # noqa: PLC0415  (see the module's docstring)
    from planner.answers.objectives import attained  # noqa: PLC0415
    from planner.ilp.problem import NotFound  # noqa: PLC0415
    from planner.requests.inquiry import Inquiry  # noqa: PLC0415

    request = resolved_request(model, cluster, job)
    inquiry = Inquiry.within(
        _ASKED_SHARE_RATIO * job.limits.solver_seconds,
        share_ratio=1.0,
        on_progress=on_progress,
    )
    result = attained(request, inquiry=inquiry)
    if isinstance(result, NotFound):
        return _infeasible(request, result, inquiry)
    found = settled(result, inquiry=inquiry)
    return _plan(found, name=request_id(request)), found.found.engines


def estimate(
    model: ResolvedModel, cluster: ResolvedCluster, job: Job, strategy: Strategy
) -> Estimate:
    """Return what a user's own strategy costs, whether it fits or not, with its simulated step.

    Raises:
        InputError: if the request is bad or the strategy is illegal.
    """
    from planner.cost.step import predict_simulated  # noqa: PLC0415

    request = resolved_request(model, cluster, job)
    whole = _checked(request, strategy)
    if isinstance(whole, InputError):
        raise whole
    prediction = predict_simulated(request.workload, request.hardware, request.job.resolved, whole)
    found = _estimate(request, whole, prediction)
    return found.model_copy(update={"warnings": (*found.warnings, *_idle(request, whole))})


def estimates(
    model: ResolvedModel, cluster: ResolvedCluster, job: Job, strategies: Iterable[Strategy]
) -> Iterator[Estimate | InputError]:
    """Yield what each strategy costs, or why it is refused, in their order.

    They are priced hundreds at a time, which is several times as fast as one by one, and without a
    simulation of their pipelines.

    Raises:
        InputError: if the request is bad.
    """
    from planner.cost.step import predictions  # noqa: PLC0415

    request = resolved_request(model, cluster, job)
    waiting = iter(strategies)
    while some := list(islice(waiting, _ESTIMATED_AT_ONCE)):
        checked = [_checked(request, strategy) for strategy in some]
        legal = [one for one in checked if not isinstance(one, InputError)]
        priced = predictions(request.workload, request.hardware, request.job.resolved, legal)
        for one in checked:
            if isinstance(one, InputError):
                yield one
            else:
                yield _estimate(request, one, next(priced))


def _checked(request: Request, strategy: Strategy) -> Strategy | InputError:
    """Return the strategy with its defaults filled in, or why it is illegal."""
    from planner.space.legality import check_strategy  # noqa: PLC0415

    try:
        whole = _resolved_strategy(request, strategy)
        check_strategy(request.model.resolved, request.hardware, request.job.resolved, whole)
    except InputError as error:
        return error
    return whole


def _estimate(request: Request, strategy: Strategy, prediction: Prediction) -> Estimate:
    from planner.space.divisibility import sharing_assumptions  # noqa: PLC0415

    shared = sharing_assumptions(request.model.resolved, strategy.tensor_parallel_degree)
    return Estimate(
        model=request.model,
        cluster=request.cluster,
        job=request.job,
        strategy=strategy,
        prediction=prediction,
        warnings=_warnings(request, prediction),
        assumptions=(*request.assumptions, *shared),
        planner_version=planner_version(),
    )


def _warnings(request: Request, prediction: Prediction | None = None) -> tuple[str, ...]:
    return answer_warnings(
        request.model.resolved,
        request.cluster.resolved,
        request.hardware,
        request.job.resolved,
        prediction=prediction,
    )


def _idle(request: Request, strategy: Strategy) -> tuple[str, ...]:
    """Return what the job states that changes nothing of the strategy's price."""
    from planner.answers.idle_fields import idle_words  # noqa: PLC0415

    job = request.job.resolved
    return tuple(idle_words(request.workload, request.hardware, job, strategy))


def request_id(request: Request) -> str:
    """Return the plan's name: the same request under the same version has the same."""
    parts = (
        request.model.digest,
        request.cluster.digest,
        request.job.digest,
        planner_version(),
    )
    return "plan-" + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _plan(settled: Settled, *, name: str) -> Plan:
    from planner.answers.explain import explanation  # noqa: PLC0415
    from planner.exporters.destinations import destinations  # noqa: PLC0415
    from planner.proof.verify import verify  # noqa: PLC0415

    request, found = settled.request, settled.found
    planned = Plan(
        id=name,
        model=request.model,
        cluster=request.cluster,
        job=request.job,
        strategy=found.strategy,
        prediction=settled.prediction,
        certificate=found.certificate,
        explanation=explanation(request, found, settled.prediction),
        warnings=(*_warnings(request, settled.prediction), *_idle(request, found.strategy)),
        planner_version=planner_version(),
    )
    verify(planned)
    return planned.model_copy(update={"destinations": destinations(planned)})


def _infeasible(request: Request, missing: NotFound, inquiry: Inquiry) -> Infeasible:
    """Return what binds and what would help, as far as the time that is left tells.

    Raises:
        InputError: if it is not known whether anything fits.
    """
    from planner.answers.relaxation import smallest_relaxations  # noqa: PLC0415  (few requests need it)

    if not missing.proven:
        raise InputError(
            "ran out before any plan was found",
            field="job.limits.solver_seconds",
            value=request.job.resolved.limits.solver_seconds,
            remedy="allow more seconds, or narrow the degrees",
        )
    relaxed = smallest_relaxations(request, feasible=inquiry.fits, seconds=inquiry.seconds_left)
    return Infeasible(
        id=request_id(request),
        model=request.model,
        cluster=request.cluster,
        job=request.job,
        configurations_total=missing.configurations_total,
        binding=_binding(missing, request.job.resolved.limits),
        relaxations=relaxed.changes,
        relaxations_cut_by_time=relaxed.is_cut,
        warnings=_warnings(request),
        assumptions=request.assumptions,
        planner_version=planner_version(),
    )


def _binding(missing: NotFound, limits: Limits) -> tuple[Overflow, ...]:
    """Return what binds: memory by configuration, or the rules that leave no configuration."""
    from planner.answers.explain import describe  # noqa: PLC0415

    memory = tuple(
        Overflow(
            description=describe(shortfall.configuration),
            limit="device_memory" if shortfall.exceeds_device else "host_memory",
            required_bytes=_more_than_there_is(shortfall),
            capacity_bytes=shortfall.capacity_bytes,
            reason=f"the leanest choices need more device memory than {room_words(limits)}"
            if shortfall.exceeds_device
            else "device memory would do with offload, but a device's share of host memory is too "
            "small for it",
        )
        for shortfall in missing.shortfalls
    )
    rules = tuple(
        Overflow(description=counted(count, "configuration"), limit="legality", reason=rule)
        for rule, count in sorted(missing.refused.items(), key=lambda item: -item[1])
    )
    return memory or rules


def _more_than_there_is(shortfall: Shortfall) -> float | None:
    """Return what is needed, `None` where it is known only that it is more than there is."""
    needed = shortfall.required_bytes
    return needed if needed > shortfall.capacity_bytes else None


def _resolved_strategy(request: Request, strategy: Strategy) -> Strategy:
    try:
        return strategy.resolved(
            block_count=request.model.resolved.block_count,
            global_batch_size=request.job.resolved.global_batch_size or 1,
        )
    except ValueError as error:
        raise InputError(
            str(error), field="strategy", remedy="correct the strategy or the job"
        ) from None
