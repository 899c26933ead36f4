"""Verify: recompute a plan from `planner.cost` alone: the search cannot vouch for itself."""

from __future__ import annotations

from planner.cost.step import predict, predict_simulated
from planner.errors import InputError, VerificationError
from planner.hardware import cluster_hardware
from planner.schema.cluster import Cluster
from planner.schema.job import Job, Objective, OffloadStore
from planner.schema.plan import Certificate, Plan, Prediction, ResolvedJob, Simplicity
from planner.schema.strategy import Strategy
from planner.space.complexity import features
from planner.space.legality import breaches
from planner.workload.model import model_workload

RELATIVE_TOLERANCE = 1e-9


def verify(plan: Plan) -> None:
    """Raise unless the plan is what it says.

    Its digests are those of its documents; its job is what was given; its strategy is legal;
    pricing it again gives its prediction; its parts sum to their totals; it fits; its step is not
    below its own lower bound. The bound and what the search counted are not searched again.

    Raises:
        VerificationError: naming every difference.
        InputError: if the plan's device has no profile here.
    """
    differences = [*_digests(plan), *_given(plan.job), *_legality(plan)]
    if not differences:
        differences += [*_repriced(plan), *_sums(plan.prediction), *_certificate(plan)]
    if differences:
        raise VerificationError(f"plan {plan.id}: " + "; ".join(differences))


def differences_from_prediction(step_seconds: float, prediction: Prediction) -> str:
    """Return how a search's step and fit differ from the cost model's, empty if they do not.

    A search's step is the closed form.
    """
    if not _close(step_seconds, prediction.closed_form_seconds):
        return f"step_seconds {step_seconds!r} against {prediction.closed_form_seconds!r}"
    if not prediction.fits:
        return f"the strategy {_unlikely(prediction)}"
    return ""


def _unlikely(prediction: Prediction) -> str:
    return f"is not likely enough to fit (chance {prediction.fits_probability:.1%})"


def objective_value(objective: Objective, prediction: Prediction, cluster: Cluster) -> float:
    """Return what the objective makes least.

    Seconds a step, cost per million tokens, bytes on the fullest device, or devices.
    """
    match objective:
        case Objective.THROUGHPUT:
            return prediction.step_seconds.p50
        case Objective.COST:
            return prediction.cost_per_million_tokens or 0.0
        case Objective.MEMORY:
            return max(stage.peak_memory_bytes for stage in prediction.stages)
        case Objective.DEVICES:
            return float(cluster.device_count)


def _digests(plan: Plan) -> list[str]:
    parts = (("model", plan.model), ("cluster", plan.cluster), ("job", plan.job))
    return [
        f"{name}.digest is not that of {name}.resolved"
        for name, part in parts
        if part.digest != part.resolved.digest()
    ]


def _given(job: ResolvedJob) -> list[str]:
    """Return what was given and is otherwise in the job; what was left open may be anything.

    So may limits: their defaults were others once. A job that offloads to NVMe has its own limits
    of offload.
    """
    if not isinstance(job.given, dict):
        return ["job.given is no job"]
    try:
        given = Job.from_fields(job.given, source="job.given").model_dump(mode="json")
    except InputError as error:
        return [f"job.given is no job: {error}"]
    resolved = job.resolved.model_dump(mode="json")
    stated = job.given.get("limits")
    names = stated if isinstance(stated, dict) else {}
    given["limits"] = resolved["limits"] | {name: given["limits"][name] for name in names}
    if job.resolved.offload_to is OffloadStore.NVME:
        given["limits"]["offload"] = resolved["limits"]["offload"]
    return [
        f"job.given says {name} {given[name]!r}, job.resolved {resolved[name]!r}"
        for name in job.given
        if given.get(name) is not None and given[name] != resolved[name]
    ]


def _legality(plan: Plan) -> list[str]:
    """Return what is illegal in the plan's strategy, and in the fastest that it is held against."""
    hardware, said = cluster_hardware(plan.cluster.resolved), plan.certificate.simplicity
    return [
        f"{breach.field} {breach.value}: {breach.problem}"
        for strategy in (plan.strategy, *(() if said is None else (said.fastest,)))
        for breach in breaches(plan.model.resolved, hardware, plan.job.resolved, strategy)
    ]


def _repriced(plan: Plan) -> list[str]:
    """Return every number of the prediction that pricing the strategy again does not give."""
    again = _priced_again(plan, plan.strategy)
    return _unequal("prediction", plan.prediction.model_dump(), again.model_dump())


def _priced_again(plan: Plan, strategy: Strategy) -> Prediction:
    """Return what a strategy costs, by its closed form in plans that were not simulated."""
    priced = predict if plan.prediction.simulated is None else predict_simulated
    return priced(
        model_workload(plan.model.resolved),
        cluster_hardware(plan.cluster.resolved),
        plan.job.resolved,
        strategy,
    )


def _unequal(path: str, said: object, found: object) -> list[str]:
    if isinstance(said, dict) and isinstance(found, dict):
        return [d for key in said for d in _unequal(f"{path}.{key}", said[key], found.get(key))]
    if isinstance(said, list | tuple) and isinstance(found, list | tuple):
        if len(said) != len(found):
            return [f"{path} has {len(said)} entries, recomputed {len(found)}"]
        pairs = enumerate(zip(said, found, strict=True))
        return [d for index, (a, b) in pairs for d in _unequal(f"{path}.{index}", a, b)]
    numbers = isinstance(said, float) and isinstance(found, float)
    equal = _close(said, found) if numbers else said == found  # type: ignore[arg-type]
    return [] if equal else [f"{path} says {said!r}, recomputed {found!r}"]


def _sums(prediction: Prediction) -> list[str]:
    differences: list[str] = []
    total = prediction.breakdown_seconds.total_seconds()
    if not _close(total, prediction.step_seconds.p50):
        differences.append(f"breakdown_seconds sums to {total!r}, not to the step")
    differences.extend(
        f"stages.{stage.stage}.memory_bytes does not sum to the peak"
        for stage in prediction.stages
        if not _close(stage.memory_bytes.total_bytes(), stage.peak_memory_bytes)
    )
    if not prediction.fits:
        differences.append(f"the plan {_unlikely(prediction)}")
    return [*differences, *_simulated_sums(prediction)]


def _simulated_sums(prediction: Prediction) -> list[str]:
    found = prediction.simulated
    if found is None:
        return []
    return [
        f"simulated.stages.{stage.stage} does not sum to the simulated step"
        for stage in found.stages
        if not _close(
            stage.busy_seconds + stage.idle_seconds + stage.step_end_seconds, found.step_seconds
        )
    ]


def _certificate(plan: Plan) -> list[str]:
    """Return what in the proof contradicts the plan or the proof itself."""
    said, fastest = plan.certificate, _fastest(plan)
    step, bound = plan.prediction.step_seconds.p50, said.lower_bound_seconds
    differences = [] if said.simplicity is None else _simplicity(plan, said.simplicity, fastest)
    best = step if said.simplicity is None else said.simplicity.fastest_step_seconds
    if best < bound * (1.0 - RELATIVE_TOLERANCE):
        differences.append(f"step_seconds {best!r} is below its lower bound {bound!r}")
    gap = max(0.0, 1.0 - bound / best, _objective_gap(said, best / step))
    if abs(gap - said.gap_ratio) > RELATIVE_TOLERANCE:
        differences.append(f"certificate.gap_ratio says {said.gap_ratio!r}, bound gives {gap!r}")
    if (said.status == "optimal") != (gap <= RELATIVE_TOLERANCE):
        differences.append(f"certificate.status says {said.status} with a gap of {gap!r}")
    differences += [
        f"certificate.configurations_{name} exceeds configurations_total"
        for name in ("pruned", "branched", "programmed")
        if getattr(said, f"configurations_{name}") > said.configurations_total
    ]
    return [*differences, *_closed_form(said, fastest), *_objective(plan)]


def _fastest(plan: Plan) -> Prediction:
    """Return what the fastest plan costs, which the proof is about."""
    said = plan.certificate.simplicity
    if said is None or said.fastest == plan.strategy:
        return plan.prediction
    return _priced_again(plan, said.fastest)


def _closed_form(certificate: Certificate, fastest: Prediction) -> list[str]:
    """Return what the proof says of closed forms that does not hold."""
    said = certificate.closed_form
    if said is None:
        return []
    path, found = "certificate.closed_form.step_seconds", fastest.closed_form_seconds
    differences = _unequal(path, said.step_seconds, found)
    least = found if said.least_seconds is None else said.least_seconds
    for name, value in ((path, found), ("certificate.closed_form.least_seconds", least)):
        if value < said.lower_bound_seconds * (1.0 - RELATIVE_TOLERANCE):
            differences.append(f"{name} {value!r} is below its bound {said.lower_bound_seconds!r}")
    if least > found * (1.0 + RELATIVE_TOLERANCE):
        differences.append(f"certificate.closed_form.least_seconds {least!r} is above {found!r}")
    return differences


def _simplicity(plan: Plan, said: Simplicity, fastest: Prediction) -> list[str]:
    """Return what of the fastest plan and of the simplest does not hold."""
    step, best = plan.prediction.step_seconds.p50, said.fastest_step_seconds
    differences = []
    if not fastest.fits:
        differences.append(f"certificate.simplicity.fastest: the strategy {_unlikely(fastest)}")
    if not _close(best, fastest.step_seconds.p50):
        differences.append(
            f"certificate.simplicity.fastest: step_seconds {best!r} against "
            f"{fastest.step_seconds.p50!r}"
        )
    for name, strategy in (("", plan.strategy), ("fastest_", said.fastest)):
        differences += _unequal(
            f"certificate.simplicity.{name}techniques",
            getattr(said, f"{name}techniques"),
            features(strategy),
        )
    if step > best * (1.0 + said.tolerance_ratio) * (1.0 + RELATIVE_TOLERANCE):
        differences.append(f"step_seconds {step!r} is beyond the tolerance of {best!r}")
    if said.status == "optimal" and said.least_technique_count != len(said.techniques):
        differences.append(
            f"certificate.simplicity.status says optimal with {len(said.techniques)} techniques, "
            f"of which {said.least_technique_count} are proven to be needed"
        )
    return differences


def _objective_gap(said: Certificate, best_ratio: float) -> float:
    """Return how far the best objective may be from the least there is; 1 where none was proven.

    `best_ratio` is the step of the fastest plan over that of the simplest, which is the plan's.
    """
    if not said.objective_value:
        return 0.0
    best = said.objective_value
    if said.objective is not Objective.DEVICES:
        best *= best_ratio
    return 1.0 - (said.objective_lower_bound or 0.0) / best


def _objective(plan: Plan) -> list[str]:
    """Return what the proof says of the objective that the plan does not bear out.

    Plans of before the field was there say nothing of it.
    """
    said, wanted = plan.certificate, plan.job.resolved.objective
    if said.objective_value is None:
        return []
    if said.objective is not wanted:
        return [f"certificate.objective says {said.objective}, the job's is {wanted}"]
    value = objective_value(wanted, plan.prediction, plan.cluster.resolved)
    differences = []
    if not _close(value, said.objective_value):
        differences.append(
            f"certificate.objective_value says {said.objective_value!r}, the plan has {value!r}"
        )
    bound = said.objective_lower_bound or 0.0
    if value < bound * (1.0 - RELATIVE_TOLERANCE):
        differences.append(f"the plan's {wanted} {value!r} is below its lower bound {bound!r}")
    return differences


def _close(a: float, b: float) -> bool:
    return abs(a - b) <= RELATIVE_TOLERANCE * max(abs(a), abs(b), 1e-30)
