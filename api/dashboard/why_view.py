"""What the page of reasons shows: what binds, what memory is worth, who came second, why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from api.dashboard.analysis_view import Asked, answer_of, asked
from api.dashboard.comparison_view import strategy_url
from api.dashboard.palette import STEP_PARTS
from api.services.analyses import Analysis
from planner.answers.safety_words import safety_words
from planner.answers.simplicity_words import simplicity_words
from planner.schema.plan import Plan
from planner.schema.reasons import Objection, Reasons

_LABELS = {part.name: part.label for part in STEP_PARTS}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredObjection:
    """A "why not?" with its answer, as far as there is one; `url` compares what it came to."""

    asked: str
    analysis: Analysis
    answer: Objection | None
    url: str | None
    causes: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyView:
    """Why a plan is as it is, arranged for its page."""

    plan: Plan
    simplicity: str | None
    reasons: Asked[Reasons]
    runner_up_url: str | None
    safety: str | None
    safety_url: str | None
    objections: tuple[AnsweredObjection, ...]
    is_running: bool


def why_view(plan: Plan, analyses: Sequence[Analysis]) -> WhyView:
    """Return the plan's reasons, and answers to what was asked about it."""
    reasons = asked(analyses, "reasons", Reasons)
    rival = None if reasons.answer is None else reasons.answer.runner_up
    safety = None if reasons.answer is None else reasons.answer.safety
    objective = plan.job.resolved.objective
    objections = tuple(_objection(plan, each) for each in analyses if each.kind == "why-not")
    return WhyView(
        plan=plan,
        simplicity=simplicity_words(plan),
        reasons=reasons,
        runner_up_url=None if rival is None else strategy_url(plan.id, rival.strategy),
        safety=None
        if safety is None
        else _sentence(
            safety_words(safety, objective, step_seconds=plan.prediction.step_seconds.p50)
        ),
        safety_url=None
        if safety is None or safety.strategy is None or not safety.cost_value
        else strategy_url(plan.id, safety.strategy),
        objections=objections,
        is_running=any(
            each.state == "running" for each in analyses if each.kind in {"reasons", "why-not"}
        ),
    )


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _objection(plan: Plan, analysis: Analysis) -> AnsweredObjection:
    answer = answer_of(analysis, Objection)
    strategy = None if answer is None else answer.strategy
    return AnsweredObjection(
        asked=_words(analysis.asked),
        analysis=analysis,
        answer=answer,
        url=None if strategy is None else strategy_url(plan.id, strategy),
        causes=()
        if answer is None
        else tuple(
            (_LABELS.get(cause.name, cause.name), cause.difference_seconds)
            for cause in answer.causes
        ),
    )


def _words(text: str) -> str:
    """Return `tensor_parallel_degree=4,...` as words."""
    parts = (part.partition("=") for part in text.split(","))
    return ", ".join(
        f"{name.removesuffix('_degree').replace('_', ' ')} {degree}" for name, _, degree in parts
    )
