"""Sizing trials: what a wish asks of each device count's step, and what solving it said."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.answers.chance_words import fitting_words, room_words
from planner.answers.finalists import fastest_plan
from planner.ilp.problem import NotFound
from planner.requests.device_counts import Candidate
from planner.requests.inquiry import Inquiry, Solution
from planner.requests.resolution import Request, cluster_document, resolved_request
from planner.schema.job import Job
from planner.schema.plan import ResolvedModel
from planner.schema.sizing import LimitedBy, SizingTrial, SizingWish, Verdict
from planner.units import format_bytes

DAY_SECONDS = 86400.0
HOUR_SECONDS = 3600.0


@dataclass(slots=True, kw_only=True)
class Trials:
    """The candidates that were tried for `wish`, and their fastest plans where one was found."""

    wish: SizingWish
    base: Request
    inquiry: Inquiry
    candidate_count: int
    tried: dict[Candidate, SizingTrial] = field(default_factory=dict)
    solutions: dict[Candidate, Solution] = field(default_factory=dict)

    @property
    def step_count(self) -> int:
        """Return the steps that train the wished tokens."""
        job = self.base.job.resolved
        tokens_per_step = (job.global_batch_size or 1) * (job.sequence_length or 1)
        return math.ceil(self.wish.tokens / tokens_per_step)

    def days(self, step_seconds: float) -> float:
        """Return the days that the run takes."""
        return step_seconds * self.step_count / DAY_SECONDS

    def cost(self, candidate: Candidate, step_seconds: float) -> float:
        """Return what the run costs."""
        return candidate.price_per_hour * step_seconds * self.step_count / HOUR_SECONDS

    def cutoff(self, candidate: Candidate, budget: float | None) -> tuple[float, LimitedBy]:
        """Return the longest step within deadline and budget, and which of the two it is."""
        deadline = self.wish.days * DAY_SECONDS / self.step_count
        if budget is None or candidate.price_per_hour <= 0.0:
            return deadline, "deadline"
        affordable = budget * HOUR_SECONDS / (candidate.price_per_hour * self.step_count)
        return (affordable, "budget") if affordable < deadline else (deadline, "deadline")

    def first(self, candidates: Sequence[Candidate], *, budget: float | None) -> Candidate | None:
        """Return the first that has a plan within deadline and budget, noting all up to it."""
        return next((one for one in self.meeting(candidates, budget=budget) if one), None)

    def meeting(
        self, candidates: Sequence[Candidate], *, budget: float | None
    ) -> Iterator[Candidate | None]:
        """Solve one after the other, note it, and yield it if it is within deadline and budget."""
        cutoffs = [self.cutoff(one, budget) for one in candidates]
        self._tell()
        answers = self._answers(candidates, [seconds for seconds, _ in cutoffs])
        for candidate, cutoff, answer in zip(candidates, cutoffs, answers, strict=True):
            trial = self._note(candidate, answer, *cutoff)
            self._tell()
            yield candidate if trial.verdict == "meets" else None

    def _note(
        self,
        candidate: Candidate,
        answer: Solution | NotFound,
        cutoff_seconds: float,
        limited_by: LimitedBy,
    ) -> SizingTrial:
        """Keep the outcome of asking for a plan within the cutoff."""
        missed: dict[str, Any] = {"limited_by": limited_by, "cutoff_seconds": cutoff_seconds}
        if isinstance(answer, Solution):
            trial = self._solved(candidate, answer, **missed)
        elif not answer.proven:
            trial = _trial(candidate, verdict="out_of_time", cutoff_seconds=cutoff_seconds)
        elif answer.configurations_total == 0:
            trial = self._refused(candidate, answer)
        else:
            trial = _trial(candidate, verdict="misses", **missed)
        self.tried[candidate] = trial
        if isinstance(answer, Solution) and trial.verdict == "meets":
            self.solutions[candidate] = answer
        return trial

    def fastest(self, candidate: Candidate) -> SizingTrial:
        """Return the candidate with its fastest plan, whether that meets the wish or not."""
        known = self.tried.get(candidate)
        if known is not None and known.certificate is not None:
            return known
        (answer,) = self._answers([candidate], [None])
        if isinstance(answer, NotFound):
            if answer.proven:
                return self._refused(candidate, answer)
            return known or _trial(candidate, verdict="out_of_time")
        cutoff, limited_by = self.cutoff(candidate, self.wish.budget)
        return self._solved(candidate, answer, cutoff_seconds=cutoff, limited_by=limited_by)

    def _tell(self) -> None:
        self.inquiry.tell("device counts", len(self.tried), self.candidate_count)

    def _answers(
        self, candidates: Sequence[Candidate], cutoffs_seconds: Sequence[float | None]
    ) -> Iterator[Solution | NotFound]:
        model, job = self.base.model, self.base.job.resolved
        parts = [(model, job, *each) for each in zip(candidates, cutoffs_seconds, strict=True)]
        return self.inquiry.in_turn(_fastest, parts)

    def _refused(self, candidate: Candidate, answer: NotFound) -> SizingTrial:
        """Return that nothing runs on the candidate: no legal degrees, or too little memory."""
        if answer.configurations_total == 0:
            rule = max(answer.refused, key=lambda name: answer.refused[name], default=None)
            return _trial(candidate, verdict="cannot_run", limited_by="legality", reason=rule)
        limits = self.base.job.resolved.limits
        reason = f"no plan {fitting_words(limits)}"
        if answer.shortfalls:
            least = answer.shortfalls[0]
            missing = least.required_bytes - least.capacity_bytes
            place = "on" if least.exceeds_device else "of host memory for"
            room = room_words(limits) if least.exceeds_device else "there is"
            more = f"at least {format_bytes(missing)} more {place}"
            reason = f"the leanest plan needs {more} its fullest device than {room}"
        return _trial(candidate, verdict="cannot_run", limited_by="memory", reason=reason)

    def _solved(
        self, candidate: Candidate, found: Solution, *, cutoff_seconds: float, limited_by: LimitedBy
    ) -> SizingTrial:
        """Return what a plan says: its simulated step may miss what its closed form meets."""
        missed = {"limited_by": limited_by, "cutoff_seconds": cutoff_seconds}
        is_met = found.step_seconds <= cutoff_seconds
        return _trial(
            candidate,
            verdict="meets" if is_met else "misses",
            step_seconds=found.step_seconds,
            days=self.days(found.step_seconds),
            cost=self.cost(candidate, found.step_seconds),
            certificate=found.certificate,
            **({} if is_met else missed),
        )


def _fastest(
    model: ResolvedModel,
    job: Job,
    candidate: Candidate,
    cutoff_seconds: float | None,
    *,
    inquiry: Inquiry,
) -> Solution | NotFound:
    """Return the fastest plan on the devices, within the cutoff where there is one."""
    document = cluster_document(candidate.cluster.name, candidate.cluster)
    request = resolved_request(model, document, job)
    return fastest_plan(request, inquiry=inquiry, cutoff_seconds=cutoff_seconds)


def _trial(candidate: Candidate, *, verdict: Verdict, **facts: Any) -> SizingTrial:
    return SizingTrial(
        device=candidate.device,
        node_count=candidate.node_count,
        devices_per_node=candidate.devices_per_node,
        device_count=candidate.device_count,
        verdict=verdict,
        **facts,
    )
