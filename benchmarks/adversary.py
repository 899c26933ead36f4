"""`python -m benchmarks.adversary`: try hard to find a strategy that beats a plan's certificate.

It knows nothing of bounds and programs: it draws configurations of the searched space at random,
prices strategies one by one with the cost model that users' own strategies are priced with, and
improves the best by random moves of cuts, choices and configurations, the plan's own strategy among
them. One strategy that fits and takes less than the certificate's lower bound proves a bug. The
exit code is 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import exp
from random import Random
from typing import Any

from benchmarks.case import Case, random_case
from benchmarks.draft import Draft, draft_of, strategy_of
from benchmarks.moves import Moves
from benchmarks.outside import lifted_limits
from benchmarks.ranking import ranked_starts
from planner import planning
from planner.cost.configuration import Configuration
from planner.cost.step import predict
from planner.errors import MeshwrightError
from planner.hardware import cluster_hardware
from planner.planning import resolved_cluster, resolved_model
from planner.requests.resolution import Request, resolved_request
from planner.schema.job import Job, Limits
from planner.schema.plan import Plan
from planner.schema.strategy import Strategy
from planner.space.legality import breaches

TOLERANCE = 1e-9
RESTARTS = 6
RESTART_SHARE = 0.25
BLIND_SHARE = 0.6
NEIGHBOUR_SHARE = 0.75
OVERFLOW_PENALTY = 5.0
START_TEMPERATURE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """The fastest strategy found that fits and is legal, None if none was, and for what effort.

    `blind_seconds` is the fastest that was found before the plan's own strategy was looked at.
    """

    plan_seconds: float
    lower_bound_seconds: float
    blind_seconds: float
    best_seconds: float
    best: Strategy | None
    evaluation_count: int

    @property
    def breaks_certificate(self) -> bool:
        """Return whether the certificate is false."""
        return self.best_seconds < self.lower_bound_seconds * (1.0 - TOLERANCE)


def attack(plan: Plan, *, seed: int, evaluation_count: int, limits: Limits | None = None) -> Attack:
    """Return the best that `evaluation_count` prices find within the plan's searched space.

    Prices are closed forms, of which the certificate has a proof.

    With `limits` in place of the job's it is looked for in their space, which the certificate says
    nothing about if it is not within the job's own.
    """
    job = Job.model_validate(plan.job.given)
    request = resolved_request(plan.model, plan.cluster, job)
    hunt = _Hunt(
        request=request,
        moves=Moves.of(request, limits=limits),
        random=Random(seed),  # noqa: S311 - a search, no secret
        evaluations_left=evaluation_count,
    )
    if hunt.moves.configurations:
        _restart(hunt, until=evaluation_count * (1.0 - RESTART_SHARE))
        starts = _different(hunt.starts)
        for rest, (_, draft) in enumerate(starts, start=1):
            share = BLIND_SHARE - RESTART_SHARE
            spent = RESTART_SHARE + share * rest / len(starts)
            _improve(hunt, draft, until=evaluation_count * (1.0 - spent))
    blind = hunt.best_seconds
    if limits is None:
        own = draft_of(plan.strategy, request.hardware)
        _look_around(hunt, own, until=evaluation_count * (1.0 - NEIGHBOUR_SHARE))
        _improve(hunt, own, until=0.0)
    proven = plan.certificate.closed_form
    return Attack(
        plan_seconds=plan.prediction.closed_form_seconds,
        lower_bound_seconds=plan.certificate.lower_bound_seconds
        if proven is None
        else proven.lower_bound_seconds,
        blind_seconds=blind,
        best_seconds=hunt.best_seconds,
        best=hunt.best,
        evaluation_count=evaluation_count - hunt.evaluations_left,
    )


@dataclass(slots=True, kw_only=True)
class _Hunt:
    """What is known so far, and how many prices may still be asked for."""

    request: Request
    moves: Moves
    random: Random
    evaluations_left: int
    best_seconds: float = float("inf")
    best: Strategy | None = None
    starts: list[tuple[float, Draft]] = field(default_factory=list)

    def energy(self, draft: Draft) -> float:
        """Return the step, dearer by what does not fit, and take note of the best legal one."""
        self.evaluations_left -= 1
        request = self.request
        job = request.job.resolved
        strategy = strategy_of(draft, request.hardware)
        found = predict(request.workload, request.hardware, job, strategy)
        step = found.step_seconds.p50
        if found.fits and step < self.best_seconds and self._is_legal(strategy):
            self.best_seconds, self.best = step, strategy
        overflow = max(
            max(
                stage.peak_memory_bytes / stage.capacity_bytes,
                stage.host_memory_bytes / max(stage.host_capacity_bytes, 1.0),
            )
            for stage in found.stages
        )
        return step * (1.0 + OVERFLOW_PENALTY * max(overflow - 1.0, 0.0))

    def _is_legal(self, strategy: Strategy) -> bool:
        request = self.request
        job = request.job.resolved
        found = breaches(request.model.resolved, request.hardware, job, strategy)
        return next(found, None) is None


def _restart(hunt: _Hunt, *, until: float) -> None:
    """Price even strategies: those that look fastest, and others drawn at random."""
    configurations = hunt.moves.configurations
    half = int(hunt.evaluations_left - until) // 2
    for place, block_choice in ranked_starts(hunt.moves, most=half):
        configuration, chosen = configurations[place], hunt.moves.blocks[block_choice]
        if chosen in hunt.moves.choices(configuration):
            draft = hunt.moves.start(configuration, chosen)
            hunt.starts.append((hunt.energy(draft), draft))
    while hunt.evaluations_left > until:
        configuration = configurations[hunt.random.randrange(len(configurations))]
        offered = list(hunt.moves.choices(configuration))
        for choice in hunt.random.sample(offered, min(4, len(offered))):
            draft = hunt.moves.start(configuration, choice)
            hunt.starts.append((hunt.energy(draft), draft))


def _different(starts: Sequence[tuple[float, Draft]]) -> list[tuple[float, Draft]]:
    """Return the best starts, one for each configuration."""
    best: dict[Configuration, tuple[float, Draft]] = {}
    for energy, draft in sorted(starts, key=lambda start: start[0]):
        best.setdefault(draft.configuration, (energy, draft))
    return list(best.values())[:RESTARTS]


def _look_around(hunt: _Hunt, draft: Draft, *, until: float) -> None:
    """Price the draft under the configurations that differ least from its own, in random order."""
    near = hunt.moves.neighbours(draft.configuration)
    hunt.random.shuffle(near)
    for configuration in near:
        if hunt.evaluations_left <= until:
            return
        hunt.energy(hunt.moves.moved(draft, configuration))


def _improve(hunt: _Hunt, draft: Draft, *, until: float) -> None:
    """Anneal a draft by random moves: worse ones are taken the more seldom the later it is."""
    first = hunt.evaluations_left
    energy = hunt.energy(draft)
    while (left := hunt.evaluations_left - until) > 0:
        tried = hunt.moves.random(draft, hunt.random)
        found = hunt.energy(tried)
        temperature = START_TEMPERATURE * left / (first - until) + 1e-6
        worse = found / energy - 1.0
        if worse <= 0.0 or hunt.random.random() < exp(-worse / temperature):
            draft, energy = tried, found


def main() -> int:
    """Attack the plans of random cases, print what came of it, and return the exit code."""
    options = _options()
    broken = 0
    for index in options.cases or range(options.count):
        case = random_case(index, seed=options.seed, seconds_limit=options.seconds_limit)
        result = _attacked(case, options)
        broken += result["status"] == "BROKEN"
        print(json.dumps(result) if options.json else _line(result), flush=True)
    return 1 if broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adversary", description=__doc__)
    parser.add_argument("--count", type=int, default=20, help="random cases (default %(default)s)")
    parser.add_argument("--cases", type=int, nargs="+", metavar="INDEX", help="only these")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--evaluations", type=int, default=2000, help="prices for each plan")
    parser.add_argument("--seconds-limit", type=float, default=20.0, help="of the planner")
    parser.add_argument(
        "--outside", action="store_true", help="also look where no rule of the space lets one look"
    )
    parser.add_argument("--json", action="store_true", help="a JSON object a line")
    return parser.parse_args()


def _attacked(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    head = {"index": case.index, "title": case.title()}
    try:
        plan = planning.plan(
            resolved_model(case.model),
            resolved_cluster(case.cluster),
            Job.from_fields(case.job, source="job"),
        )
    except MeshwrightError as error:
        return {**head, "status": "no plan", "message": f"{type(error).__name__}: {error}"}
    if not isinstance(plan, Plan):
        return {**head, "status": "no plan", "message": "infeasible"}
    start = time.perf_counter()
    found = attack(plan, seed=options.seed, evaluation_count=options.evaluations)
    result = {
        **head,
        "status": "BROKEN" if found.breaks_certificate else "holds",
        "proof": plan.certificate.status,
        "plan_seconds": found.plan_seconds,
        "lower_bound_seconds": found.lower_bound_seconds,
        "blind_seconds": found.blind_seconds,
        "best_found_seconds": found.best_seconds,
        "evaluation_count": found.evaluation_count,
        "seconds": time.perf_counter() - start,
    }
    if found.best is not None and found.best_seconds < found.plan_seconds * (1.0 - TOLERANCE):
        result["strategy"] = found.best.model_dump(mode="json")
    if options.outside:
        result["outside"] = _outside(plan, options)
    return result


def _outside(plan: Plan, options: argparse.Namespace) -> dict[str, float]:
    """Return the best step found over the plan's, by the rule of the space that was lifted.

    Below 1 is no bug: the certificate speaks of the searched space. It says what a rule costs.
    """
    limits = plan.job.resolved.limits
    hardware = cluster_hardware(plan.cluster.resolved)
    ratios: dict[str, float] = {}
    for rule, lifted in lifted_limits(limits, hardware).items():
        found = attack(plan, seed=options.seed, evaluation_count=options.evaluations, limits=lifted)
        if found.best is not None:
            ratios[rule] = found.best_seconds / found.plan_seconds
    return ratios


def _line(result: dict[str, Any]) -> str:
    return " ".join(_words(result))


def _words(result: dict[str, Any]) -> Iterator[str]:
    yield f"#{result['index']:<4} {result['status']:<8}"
    if "message" in result:
        yield f"{result['title']}: {result['message'][:160]}"
        return
    ratio = result["best_found_seconds"] / result["plan_seconds"]
    bound = result["best_found_seconds"] / result["lower_bound_seconds"]
    blind = result["blind_seconds"] / result["plan_seconds"]
    yield f"{result['proof']:<8} best found {ratio:.9f} x the plan, {bound:.9f} x its bound,"
    yield f"{blind:.4f} x without its help"
    yield f"({result['evaluation_count']} prices in {result['seconds']:.1f} s) {result['title']}"
    for rule, outside in result.get("outside", {}).items():
        yield f"\n      outside, {rule}: best found {outside:.4f} x the plan"
    if result["status"] == "BROKEN":
        yield json.dumps(result["strategy"])


if __name__ == "__main__":
    sys.exit(main())
