"""What is made of a plan, as it goes over the wire: exports, and analyses."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from api.schemas import WirePart
from planner.errors import InputError
from planner.schema.framework_prices import FrameworkPrices
from planner.schema.frontier import Frontier
from planner.schema.reasons import Heatmap, Objection, Reasons
from planner.schema.service import Problem

AnalysisKind = Literal["reasons", "why-not", "heatmap", "frontier", "frameworks"]
FixedDegree = Annotated[int | None, Field(ge=1, le=2**20)]


class ExportTarget(WirePart):
    """A target that a plan can become; `refusal` says why it can run nothing like this one."""

    target: str
    refusal: str | None


class ExportTargetList(WirePart):
    """All targets."""

    items: tuple[ExportTarget, ...]


class AnalysisRequest(WirePart):
    """A question about a plan; degrees are for `why-not`, which fixes at least one."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"kind": "why-not", "tensor_parallel_degree": 8}]}
    )

    kind: AnalysisKind
    tensor_parallel_degree: FixedDegree = None
    pipeline_parallel_degree: FixedDegree = None
    context_parallel_degree: FixedDegree = None
    expert_parallel_degree: FixedDegree = None

    def asked(self) -> str:
        """Return the degrees that are fixed as `name=degree,...`.

        Raises:
            InputError: if a "why not?" fixes none, or another question fixes some.
        """
        degrees = self.model_dump(exclude={"kind"}, exclude_none=True)
        if self.kind == "why-not" and not degrees:
            raise InputError(
                "names no degree", field="why not", remedy="fill in at least one degree"
            )
        if self.kind != "why-not" and degrees:
            raise InputError(
                f"is not a part of a question for {self.kind}",
                field=next(iter(degrees)),
                remedy="leave it out, or ask `why-not`",
            )
        return ",".join(f"{name}={degree}" for name, degree in degrees.items())


class PlanAnalysis(WirePart):
    """A question about a plan, and what came of it so far.

    `asked` has the degrees that a `why-not` fixes, as `name=degree,...`. While it is at work,
    `done` of `total` parts of `phase` are; then the answer is in the field of its kind.
    """

    kind: AnalysisKind
    asked: str
    state: Literal["running", "succeeded", "failed"]
    phase: str
    done: int
    total: int
    reasons: Reasons | None = None
    objection: Objection | None = None
    heatmap: Heatmap | None = None
    frontier: Frontier | None = None
    frameworks: FrameworkPrices | None = None
    problem: Problem | None = None


class PlanAnalysisList(WirePart):
    """What was asked about a plan, the newest question first."""

    items: tuple[PlanAnalysis, ...]
