"""Check: the contract test of a plan or strategy for a user's own CI: legal, fits, not slower."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.answers.chance_words import chance_words, fit_words
from planner.answers.objection import stage_excesses, step_causes
from planner.answers.refusal import resolved_and_broken
from planner.cost.step import predict_simulated
from planner.errors import InputError
from planner.requests.resolution import Request, resolved_request
from planner.schema.check import CheckName, CheckReport, CheckResult
from planner.schema.job import Job, Limits
from planner.schema.model import ModelGraph
from planner.schema.plan import Plan, Prediction
from planner.schema.reasons import Cause, Excess
from planner.schema.strategy import Strategy
from planner.units import format_bytes
from planner.version import planner_version

DEFAULT_MAX_SLOWDOWN = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The plan that the strategy must keep up with, and its price by this version."""

    plan: Plan
    prediction: Prediction | None
    rules: tuple[str, ...]

    @property
    def tokens_per_second(self) -> float:
        """Return the tokens that the baseline trains in a second, 0 if it is no longer legal."""
        if self.prediction is None:
            return 0.0
        return _tokens(self.plan.job.resolved) / self.prediction.step_seconds.p50


def check(
    request: Request,
    strategy: Strategy,
    *,
    source: str,
    baseline: Plan | None = None,
    max_slowdown_ratio: float = DEFAULT_MAX_SLOWDOWN,
) -> CheckReport:
    """Return whether `strategy` is legal, fits, and keeps up with `baseline`.

    Raises:
        InputError: if the baseline trains another model or on other sequences, or its own model,
            cluster and job do not go together.
    """
    if baseline is not None:
        _check_alike(request, baseline)
    whole, broken = resolved_and_broken(request, strategy)
    prediction = None
    if whole is not None and not broken:
        prediction = predict_simulated(
            request.workload, request.hardware, request.job.resolved, whole
        )
    lacking = () if prediction is None else tuple(stage_excesses(prediction))
    held = None if baseline is None else _priced(baseline)
    slowdown = _slowdown(request, prediction, held)
    results = (
        _legal(broken),
        _fits(prediction, lacking, request.job.resolved.limits),
        *([] if held is None else [_not_slower(slowdown, max_slowdown_ratio, held)]),
    )
    return CheckReport(
        status="failed" if any(one.outcome == "failed" for one in results) else "passed",
        source=source,
        model=request.model,
        cluster=request.cluster,
        job=request.job,
        strategy=strategy if whole is None else whole,
        results=results,
        rules=broken,
        excesses=lacking,
        prediction=prediction,
        baseline_id=None if held is None else held.plan.id,
        baseline_step_seconds=None
        if held is None or held.prediction is None
        else held.prediction.step_seconds.p50,
        slowdown_ratio=slowdown,
        max_slowdown_ratio=max_slowdown_ratio,
        causes=_changes(prediction, held),
        planner_version=planner_version(),
    )


def _tokens(job: Job) -> int:
    return (job.global_batch_size or 0) * (job.sequence_length or 0)


def _check_alike(request: Request, baseline: Plan) -> None:
    """Raise unless tokens a second of the two say which is faster: batches may differ, no more."""
    own, its = request.model.resolved, baseline.model.resolved
    length = request.job.resolved.sequence_length
    if _unnamed(own) != _unnamed(its):
        raise InputError(
            f"is a plan of another model than {own.name}",
            field="baseline",
            value=f"{baseline.id} of {its.name}, digest {its.digest()[:12]}",
            remedy=f"give a plan of the model with digest {own.digest()[:12]}",
        )
    if baseline.job.resolved.sequence_length != length:
        raise InputError(
            f"is a plan for other sequences than {length} tokens",
            field="baseline",
            value=f"{baseline.id} for {baseline.job.resolved.sequence_length} tokens",
            remedy=f"give a plan with sequence_length {length}",
        )


def _unnamed(graph: ModelGraph) -> ModelGraph:
    """Return the model without what depends on the file that it came from."""
    return graph.model_copy(update={"name": "", "assumptions": ()})


def _priced(plan: Plan) -> Baseline:
    """Return the baseline on its own model, cluster and job, priced by this version."""
    request = resolved_request(plan.model, plan.cluster, plan.job.resolved)
    whole, broken = resolved_and_broken(request, plan.strategy)
    prediction = None
    if whole is not None and not broken:
        prediction = predict_simulated(
            request.workload, request.hardware, request.job.resolved, whole
        )
    return Baseline(plan=plan, prediction=prediction, rules=broken)


def _slowdown(
    request: Request, prediction: Prediction | None, held: Baseline | None
) -> float | None:
    """Return tokens per second of the baseline / those of the strategy - 1, if both are known."""
    if prediction is None or held is None or held.prediction is None:
        return None
    own = _tokens(request.job.resolved) / prediction.step_seconds.p50
    return held.tokens_per_second / own - 1.0


def _legal(broken: Sequence[str]) -> CheckResult:
    if broken:
        return CheckResult(name="legal", outcome="failed", detail="; ".join(broken))
    return CheckResult(name="legal", outcome="passed", detail="keeps every rule")


def _fits(prediction: Prediction | None, lacking: Sequence[Excess], limits: Limits) -> CheckResult:
    if prediction is None:
        return _skipped("fits")
    if not lacking:
        fullest = max(prediction.stages, key=lambda s: s.peak_memory_bytes / s.capacity_bytes)
        detail = (
            f"{format_bytes(fullest.peak_memory_bytes)} of "
            f"{format_bytes(fullest.capacity_bytes)} on the fullest stage "
            f"({chance_words(prediction, limits)})"
        )
        return CheckResult(name="fits", outcome="passed", detail=detail)
    detail = "; ".join(
        f"stage {one.stage}: {format_bytes(one.required_bytes)} of "
        f"{one.resource.replace('_', ' ')}, {format_bytes(one.excess_bytes)} too much"
        for one in lacking
    )
    detail = f"{fit_words(prediction)}: {detail} ({chance_words(prediction, limits)})"
    return CheckResult(name="fits", outcome="failed", detail=detail)


def _not_slower(slowdown: float | None, allowed: float, held: Baseline) -> CheckResult:
    if held.prediction is None:
        detail = f"baseline {held.plan.id} is no longer legal: {held.rules[0]}"
        return CheckResult(name="not_slower", outcome="failed", detail=detail)
    if slowdown is None:
        return _skipped("not_slower")
    words = f"{abs(slowdown):.2%} {'slower' if slowdown > 0.0 else 'faster'} than {held.plan.id}"
    return CheckResult(
        name="not_slower",
        outcome="failed" if slowdown > allowed else "passed",
        detail=f"{words}; {allowed:.2%} slower is allowed",
    )


def _skipped(name: CheckName) -> CheckResult:
    return CheckResult(name=name, outcome="skipped", detail="an earlier check has failed")


def _changes(prediction: Prediction | None, held: Baseline | None) -> tuple[Cause, ...]:
    if prediction is None or held is None or held.prediction is None:
        return ()
    return step_causes(held.prediction, prediction)
