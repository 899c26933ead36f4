"""Analyses as pages show them: not asked, at work, failed, or answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from api.services.analyses import Analysis
from planner.schema.document import Part

Answer = TypeVar("Answer", bound=Part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Generic[Answer]):
    """A question and what came of it so far; `analysis` is `None` where nobody asked it."""

    kind: str
    analysis: Analysis | None
    answer: Answer | None

    @property
    def state(self) -> str:
        """Return running, succeeded, failed, or unasked."""
        return "unasked" if self.analysis is None else self.analysis.state


def asked(analyses: Sequence[Analysis], kind: str, document: type[Answer]) -> Asked[Answer]:
    """Return the newest analysis of that kind with its answer read."""
    found = next((analysis for analysis in analyses if analysis.kind == kind), None)
    return Asked(kind=kind, analysis=found, answer=answer_of(found, document))


def answer_of(analysis: Analysis | None, document: type[Answer]) -> Answer | None:
    """Return the answer, if there is one."""
    if analysis is None or analysis.document_json is None:
        return None
    return document.model_validate_json(analysis.document_json)
