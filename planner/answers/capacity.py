"""Capacity: the fewest or cheapest devices that train so many tokens in time and within a budget.

A run of `tokens` takes ceil(tokens / (batch x length)) steps, so deadline and budget are upper
limits of the step, and a search for a plan under that limit proves it where there is none. More
devices do not always help (their number has to divide into degrees), so every candidate count is
solved by itself, and the answer is the least among those tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import takewhile

from planner.answers.explain import describe_strategy
from planner.answers.sizing_trials import Trials
from planner.hardware import device_profile
from planner.requests.device_counts import Candidate, candidates, counts_of, least_device_count
from planner.requests.inquiry import Inquiry, Solution
from planner.requests.resolution import Request, cluster_document, resolved_request
from planner.schema.job import Job
from planner.schema.plan import ResolvedModel
from planner.schema.sizing import Bind, DeviceRange, SizedPlan, Sizing, SizingTrial, SizingWish
from planner.version import planner_version

_STRICTLY_LESS = 1.0 - 1e-9
_NEAREST_TRIES = 4
_SIMPLIFIED_SHARE_RATIO = 0.1
"""Of the time, to look for the simplest plan of the answer."""


def size(model: ResolvedModel, job: Job, wish: SizingWish, *, inquiry: Inquiry) -> Sizing:
    """Return the devices that the wish asks for, or what stands in the way.

    Raises:
        InputError: if a device is unknown, or model and job do not go together.
        SolverError: if the solver fails.
        VerificationError: if a plan does not survive its own recomputation.
    """
    base = _base_request(model, job, wish)
    ordered = candidates(wish, base)
    trials = Trials(wish=wish, base=base, inquiry=inquiry, candidate_count=len(ordered))
    with inquiry.leaving(_SIMPLIFIED_SHARE_RATIO):
        chosen = _best(trials, ordered)
        smaller = None if chosen is None else _next_smaller(trials, chosen)
    if chosen is None:
        nearest, binding = _nearest_miss(trials, ordered)
        return _sizing(trials, ordered, None, nearest_miss=nearest, binding=binding)
    return _sizing(trials, ordered, chosen, next_smaller=smaller)


def _base_request(model: ResolvedModel, job: Job, wish: SizingWish) -> Request:
    """Return the job resolved without regard to any cluster, so that all candidates share it."""
    for device in wish.devices:
        device_profile(device)
    lone = Candidate(device=wish.devices[0], node_count=1, devices_per_node=1, price_per_hour=0.0)
    return resolved_request(model, cluster_document(lone.cluster.name, lone.cluster), job)


def _best(trials: Trials, ordered: Sequence[Candidate]) -> Candidate | None:
    chosen = _fewest(trials, ordered)
    if chosen is None or trials.wish.goal == "fewest":
        return chosen
    return _cheaper(trials, ordered, chosen)


def _fewest(trials: Trials, ordered: Sequence[Candidate]) -> Candidate | None:
    """Return the first candidate within deadline and budget.

    One that is within both is looked for in growing strides; then all below it, in order.
    """
    budget = trials.wish.budget
    bracket = trials.first(list(_strides(ordered)), budget=budget)
    below = ordered if bracket is None else ordered[: ordered.index(bracket)]
    untried = [candidate for candidate in below if candidate not in trials.tried]
    return trials.first(untried, budget=budget) or bracket


def _strides(ordered: Sequence[Candidate]) -> Iterator[Candidate]:
    """Yield the candidates 0, 1, 3, 7, ... and the last."""
    index = 0
    while index < len(ordered) - 1:
        yield ordered[index]
        index = 2 * index + 1
    yield from ordered[-1:]


def _cheaper(trials: Trials, ordered: Sequence[Candidate], chosen: Candidate) -> Candidate:
    """Return the candidate of the cheapest run in time, each asked to beat the best so far."""
    best, rest = _run_cost(trials, chosen), list(ordered)
    while rest:
        if not _is_open(trials, rest[0]):
            known = rest.pop(0)
            if known in trials.solutions and _run_cost(trials, known) < best:
                chosen, best = known, _run_cost(trials, known)
            continue
        asked = list(takewhile(partial(_is_open, trials), rest))
        for found in trials.meeting(asked, budget=best * _STRICTLY_LESS):
            del rest[0]
            if found is not None and _run_cost(trials, found) < best:
                chosen, best = found, _run_cost(trials, found)
                break  # the others are asked to beat this one
    return chosen


def _is_open(trials: Trials, candidate: Candidate) -> bool:
    """Return whether it is not known what the candidate's plan costs, or that it has none."""
    trial = trials.tried.get(candidate)
    return trial is None or (trial.verdict == "out_of_time" and candidate not in trials.solutions)


def _run_cost(trials: Trials, candidate: Candidate) -> float:
    return trials.cost(candidate, trials.solutions[candidate].step_seconds)


def _is_proven(trials: Trials, ordered: Sequence[Candidate], chosen: Candidate | None) -> bool:
    """Return whether every candidate that could have been better was solved and is not."""
    rivals = ordered
    if chosen is not None and trials.wish.goal == "fewest":
        rivals = ordered[: ordered.index(chosen)]
    return all(candidate == chosen or _is_worse(trials, candidate, chosen) for candidate in rivals)


def _is_worse(trials: Trials, candidate: Candidate, chosen: Candidate | None) -> bool:
    trial = trials.tried.get(candidate)
    if trial is None or chosen is None or trial.verdict != "meets":
        return trial is not None and _is_ruled_out(trial)
    bound = trials.solutions[candidate].certificate.lower_bound_seconds
    return trials.cost(candidate, bound) >= _run_cost(trials, chosen) * _STRICTLY_LESS


def _is_ruled_out(trial: SizingTrial) -> bool:
    """Return whether no plan of a count meets the wish, as far as was proven of closed forms."""
    if trial.verdict != "misses" or trial.certificate is None:
        return trial.verdict in {"misses", "cannot_run"}
    return trial.certificate.lower_bound_seconds > (trial.cutoff_seconds or 0.0)


def _next_smaller(trials: Trials, chosen: Candidate) -> SizingTrial | None:
    """Return the next smaller count of the chosen kind with its own fastest plan."""
    counts = counts_of(chosen.device, trials.wish)
    smaller = [one for one in counts if one.device_count < chosen.device_count]
    return trials.fastest(smaller[-1]) if smaller else None


def _nearest_miss(trials: Trials, ordered: Sequence[Candidate]) -> tuple[SizingTrial | None, Bind]:
    """Return what comes nearest, and what binds.

    The budget, where some run is in time without it: the cheapest of those is nearest. The
    deadline, where something runs: the fastest among the largest counts is nearest.
    """
    if trials.wish.budget is not None and ordered:
        wish = trials.wish.model_copy(update={"budget": None, "goal": "cheapest"})
        free = Trials(
            wish=wish,
            base=trials.base,
            inquiry=trials.inquiry,
            candidate_count=trials.candidate_count,
        )
        cheapest = _best(free, ordered)
        if cheapest is not None:
            missed = {"verdict": "misses", "limited_by": "budget"}
            return free.fastest(cheapest).model_copy(update=missed), "budget"
    largest = [trial for device in trials.wish.devices for trial in _largest(trials, device)]
    solved = [trial for trial in largest if trial.days is not None]
    if solved:
        return min(solved, key=lambda trial: trial.days or 0.0), "deadline"
    refused = [trial for trial in largest if trial.verdict == "cannot_run"]
    memory = [trial for trial in refused if trial.limited_by == "memory"]
    if refused:
        return (memory[0], "memory") if memory else (refused[0], "legality")
    return None, "time_limit"


def _largest(trials: Trials, device: str) -> Iterator[SizingTrial]:
    """Yield the largest counts of a kind with their fastest plans, down to one that runs."""
    descending = list(counts_of(device, trials.wish))[::-1]
    for candidate in descending[:_NEAREST_TRIES]:
        trial = trials.fastest(candidate)
        yield trial
        if trial.days is not None:
            return


def _sizing(
    trials: Trials,
    ordered: Sequence[Candidate],
    chosen: Candidate | None,
    *,
    next_smaller: SizingTrial | None = None,
    nearest_miss: SizingTrial | None = None,
    binding: Bind | None = None,
) -> Sizing:
    kinds = tuple(dict.fromkeys(trials.wish.devices))
    return Sizing(
        status="none" if chosen is None else "found",
        wish=trials.wish,
        model=trials.base.model,
        job=trials.base.job,
        answer=None if chosen is None else _sized(trials, chosen),
        proven=_is_proven(trials, ordered, chosen),
        next_smaller=next_smaller,
        nearest_miss=nearest_miss,
        binding=binding,
        ranges=tuple(_range(trials, device, ordered) for device in kinds),
        trials=tuple(
            _with_fastest(trials.tried[c], next_smaller, nearest_miss)
            for c in ordered
            if c in trials.tried
        ),
        search_count=trials.inquiry.search_count,
        planner_version=planner_version(),
    )


def _with_fastest(trial: SizingTrial, *others: SizingTrial | None) -> SizingTrial:
    """Return the trial with the fastest plan that was found for the same devices later on."""
    for other in others:
        same = other is not None and (other.device, other.node_count, other.devices_per_node) == (
            trial.device,
            trial.node_count,
            trial.devices_per_node,
        )
        if other is not None and same and trial.days is None and other.days is not None:
            return other
    return trial


def _sized(trials: Trials, chosen: Candidate) -> SizedPlan:
    cutoff, _ = trials.cutoff(chosen, trials.wish.budget)
    found = trials.inquiry.elsewhere(_simplified, trials.solutions[chosen], cutoff)
    return SizedPlan(
        device=chosen.device,
        node_count=chosen.node_count,
        devices_per_node=chosen.devices_per_node,
        device_count=chosen.device_count,
        description=describe_strategy(found.strategy),
        step_seconds=found.step_seconds,
        step_count=trials.step_count,
        days=trials.days(found.step_seconds),
        cost=trials.cost(chosen, found.step_seconds),
        peak_memory_bytes=found.peak_memory_bytes,
        model_flop_utilization=found.prediction.model_flop_utilization,
        strategy=found.strategy,
        certificate=found.certificate,
    )


def _simplified(answer: Solution, most_seconds: float, *, inquiry: Inquiry) -> Solution:
    return inquiry.simplified(answer, most_seconds=most_seconds)


def _range(trials: Trials, device: str, ordered: Sequence[Candidate]) -> DeviceRange:
    own = [candidate for candidate in ordered if candidate.device == device]
    return DeviceRange(
        device=device,
        least_device_count=least_device_count(trials.wish, trials.base, device),
        tried=tuple(c.device_count for c in own if c in trials.tried),
        untried=tuple(c.device_count for c in own if c not in trials.tried),
    )
