"""What is said of memory goes by the chance of fitting, on every surface that says it."""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from api.dashboard.comparison_view import comparison_view
from api.dashboard.quantities import FILTERS
from planner.answers.chance_words import fitting_words
from planner.answers.check import check
from planner.answers.objection import why_not_degrees, why_not_strategy
from planner.cli.views.estimates import estimates_view
from planner.cli.views.plan import estimate_view
from planner.planning import estimate, plan
from planner.requests.inquiry import Inquiry
from planner.requests.planned import Planned
from planner.requests.resolution import Request
from planner.schema.job import Limits
from planner.schema.plan import Estimate, Infeasible
from planner.schema.strategy import Strategy
from planner.units import GIB
from tests.builders import a_plan
from tests.tight_requests import FEW_CHOICES, a_tight_cluster, a_tight_request

ROOT = Path(__file__).parents[2]
STRATEGY = Strategy(data_parallel_shard_degree=4, zero_stage=3, activation_checkpointing="none")
ASKED = FEW_CHOICES.model_copy(update={"fits_probability": 0.95})
CLAIM = re.compile(r"\b(?:not fit|fits|no .* fit)\b|too tight", re.IGNORECASE)
SAID_ELSEWHERE = {
    "planner/answers/check.py": {"fits"},  # the check's name
    "planner/schema/check.py": {"fits"},
    "planner/cli/app.py": {  # which exit code there is
        "Exit codes: 0 done, 1 error, 2 usage, 3 infeasible, does not fit or check failed."
    },
    "planner/cli/verify.py": {": legal, fits, and its prediction recomputed without the solver"},
    "planner/answers/chance_words.py": {
        "fits",
        "is too tight",
        "does not fit",
        "fits with a chance of ",
    },
}


def words_of(view: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(view)
    return console.file.getvalue()  # type: ignore[attr-defined]


def tight(chance: float) -> Request:
    """The request on devices on which the strategy has about that chance of fitting."""
    roomy = a_tight_cluster(memory_bytes=70.0 * GIB)
    found = estimate_on(a_tight_request(limits=ASKED, cluster=roomy))
    assert found.prediction.fits_probability > 0.99
    peak = max(stage.peak_memory_bytes for stage in found.prediction.stages)
    ratio = {0.83: 1.041, 0.2: 0.843}[chance]  # near the limit the allocator gives back 7 %
    cluster = a_tight_cluster(memory_bytes=peak * ratio)
    request = a_tight_request(limits=ASKED, cluster=cluster)
    assert estimate_on(request).prediction.fits_probability == pytest.approx(chance, abs=0.02)
    return request


def estimate_on(request: Request) -> Estimate:
    return estimate(request.model, request.cluster, request.job.resolved, STRATEGY)


def why_not(request: Request) -> str:
    """What speaks against the strategy where another is the plan."""
    other = plan(request.model, request.cluster, request.job.resolved)
    assert not isinstance(other, Infeasible)
    planned = Planned(request=request, strategy=other.strategy, prediction=other.prediction)
    found = why_not_strategy(planned, STRATEGY, asked="mine")
    return f"{found.verdict.replace('_', ' ')}: {found.answer}"


def checked(request: Request) -> str:
    results = check(request, STRATEGY, source="mine").results
    (found,) = [one for one in results if one.name == "fits"]
    return found.detail


def finding(request: Request) -> str:
    """What the page of comparisons says of the strategy beside itself."""
    mine = a_plan(prediction=estimate_on(request).prediction)
    return " ".join(comparison_view((mine, mine), shown="differences").findings[0].costs)


SURFACES: dict[str, Callable[[Request], str]] = {
    "estimate": lambda request: words_of(estimate_view(estimate_on(request))),
    "estimates": lambda request: words_of(estimates_view([estimate_on(request)])),
    "explain --why-not": why_not,
    "check": checked,
    "compare page": finding,
    "pages": lambda request: FILTERS["fit"](estimate_on(request).prediction),
}


@pytest.mark.parametrize("surface", list(SURFACES))
@pytest.mark.parametrize(
    ("chance", "said", "unsaid"),
    [(0.83, "too tight", "not fit"), (0.2, "does not fit", "too tight")],
)
def test_words_follow_the_chance(surface: str, chance: float, said: str, unsaid: str) -> None:
    words = SURFACES[surface](tight(chance))
    assert said in words
    assert unsaid not in words


def test_of_degrees_without_a_plan_it_is_said_at_which_chance() -> None:
    """Each has a plan with a chance of one half and more."""
    request = tight(0.83)
    other = plan(request.model, request.cluster, request.job.resolved)
    assert not isinstance(other, Infeasible)
    planned = Planned(request=request, strategy=other.strategy, prediction=other.prediction)
    fixed = {"data_parallel_shard_degree": 4, "zero_stage": 3, "activation_checkpointing": "none"}
    found = why_not_degrees(planned, fixed, asked="mine", inquiry=Inquiry.within(30.0))
    assert "fits with a chance of 95%" in found.answer


def test_no_other_words_say_that_something_fits_or_not() -> None:
    """Texts of the program and its pages; where none was found, it is said by which chance."""
    found = {
        (path, text)
        for path, text in _texts()
        if CLAIM.search(text) and text not in SAID_ELSEWHERE.get(path, set())
    }
    assert {(path, text) for path, text in found if not _is_of_a_chance(text)} == set()


def _is_of_a_chance(text: str) -> bool:
    """Return whether a text speaks of a likelihood, or hands over to words that do."""
    return bool(re.search(r"likely|chance|probability|\|fit\b|\.fits\b|\|fitting", text))


def _texts() -> Iterator[tuple[str, str]]:
    for folder in ("planner", "api"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for text in _strings(ast.parse(path.read_text())):
                yield str(path.relative_to(ROOT)), text
        for path in sorted((ROOT / folder).rglob("*.html")):
            for line in path.read_text().splitlines():
                yield str(path.relative_to(ROOT)), line.strip()


def _strings(tree: ast.Module) -> Iterator[str]:
    """Yield the strings of a module but those that stand alone, its docstrings."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value


def test_without_a_chance_asked_for_nothing_is_said_of_one() -> None:
    assert fitting_words(Limits(fits_probability=None)) == "fits"
    assert fitting_words(Limits(fits_probability=0.999)) == "fits with a chance of 99.9%"
