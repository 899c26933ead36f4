"""Published recipes: their parallel configurations checked, priced and held against our plans.

    python -m benchmarks.recipes ../shared/data/measured_runs.jsonl [--write]

prints docs/recipes.md, and writes it where that is asked for. A recipe is the first run of each
model and GPU that a publisher's page lists and that can be priced, on 8 to 64 GPUs. Only facts are
taken over, each with its source.
"""

from __future__ import annotations

import argparse
import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from planner import planning
from planner.answers.chance_words import fit_words, fitting_words, percent
from planner.answers.check import check
from planner.answers.explain import describe_strategy
from planner.answers.objection import step_causes
from planner.errors import InputError
from planner.exporters.registry import export
from planner.importers.measured_runs import read_measured_runs
from planner.requests.resolution import cluster_document, model_document, resolved_request
from planner.schema.check import CheckReport
from planner.schema.job import Framework, Limits, Stack
from planner.schema.measured_run import MeasuredRun
from planner.schema.plan import Infeasible, Plan, Prediction
from planner.schema.strategy import Strategy
from planner.validation.case import Case, case_of
from planner.validation.reasons import Unpriced

PAGE = Path(__file__).parents[1] / "docs" / "recipes.md"
SOURCES = (
    "NVIDIA-NeMo/Megatron-Bridge",
    "NVIDIA/NeMo ",
    "NVIDIA/dgxc-benchmarking",
    "pytorch/torchtitan",
    "NVIDIA/NeMo-Framework-Launcher",
    "mlcommons/training_results",
    "bigscience-workshop",
)
_FRAMEWORKS = {Stack.MEGATRON: Framework.MEGATRON_LM, Stack.DEEPSPEED: None}
_SAME = 0.01
_EACH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A recipe with its check and the plan for the same model, GPUs and job, None in no time."""

    case: Case
    report: CheckReport
    answer: Plan | Infeasible | None


def main() -> None:
    """Print the page made from the file that is named, and write it where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--most", type=int, default=18, help="how many recipes")
    parser.add_argument("--seconds", type=float, default=40.0, help="of search for each")
    parser.add_argument("--write", action="store_true", help="into docs/recipes.md")
    given = parser.parse_args()
    recipes = []
    for case in _cases(given.runs, given.most):
        recipes.append(_recipe(case, given.seconds))
        print(_row(recipes[-1]), flush=True)
    page = _page(recipes, given.seconds)
    print(page)
    if given.write:
        PAGE.write_text(page, encoding="utf-8")


def _cases(path: Path, most: int) -> Iterator[Case]:
    """Yield the first priced run of each model and GPU of a publisher, three of each publisher."""
    seen: set[tuple[str, str | None, str | None]] = set()
    for run in read_measured_runs(path):
        key = (_publisher(run), run.model, run.gpu)
        alike = sum(publisher == key[0] for publisher, *_ in seen)
        if key in seen or not _is_recipe(run) or alike >= _EACH or len(seen) >= most:
            continue
        try:
            case = case_of(run)
        except Unpriced:
            continue
        seen.add(key)
        yield case


def _is_recipe(run: MeasuredRun) -> bool:
    source = run.source or ""
    sized = 8 <= (run.num_gpus or 0) <= 64
    return sized and source.startswith(SOURCES)


def _publisher(run: MeasuredRun) -> str:
    return (run.source or "").split("@")[0].split(" ")[0]


def _recipe(case: Case, seconds: float) -> Recipe:
    limits = Limits(solver_seconds=seconds)
    case = replace(case, job=case.job.model_copy(update={"limits": limits}))
    framework = None if case.job.adapters else _FRAMEWORKS.get(case.job.stack, Framework.TORCHTITAN)
    job = case.job.model_copy(update={"framework": framework})
    model = model_document(None, case.graph)
    cluster = cluster_document(None, case.cluster)
    report = check(
        resolved_request(model, cluster, case.job), case.strategy, source=case.run.id or "recipe"
    )
    try:
        answer = planning.plan(model, cluster, job)
    except InputError as error:
        if error.field != "job.limits.solver_seconds":
            raise
        return Recipe(case=case, report=report, answer=None)
    return Recipe(case=case, report=report, answer=answer)


def _row(recipe: Recipe) -> str:
    run, answer = recipe.case.run, recipe.answer
    own = recipe.report.prediction or recipe.case.price()
    start = (
        f"| {run.model} | {run.num_gpus} x {run.gpu} | {describe_strategy(recipe.case.strategy)}"
    )
    verdict = _verdict(recipe.report, own)
    if answer is None:
        cells = ["none found in time", "", "", ""]
    elif isinstance(answer, Infeasible):
        reason = answer.binding[0].reason if answer.binding else ""
        cells = [f"none {fitting_words(answer.job.resolved.limits)}", "", "", reason]
    else:
        cells = [
            describe_strategy(answer.strategy),
            f"{answer.prediction.fits_probability:.0%}",
            _difference(own, answer.prediction),
            _why(own, answer),
        ]
    return " | ".join([start, verdict, _measured(run), _seconds(own), *cells]) + " |"


def _measured(run: MeasuredRun) -> str:
    return "" if run.step_time_s is None else f"{run.step_time_s:.3g} s"


def _seconds(prediction: Prediction) -> str:
    return f"{prediction.step_seconds.p50:.3g} s"


def _verdict(report: CheckReport, own: Prediction) -> str:
    """Return whether the recipe is legal, and fits, by the words that its chance has."""
    broken = [r.detail for r in report.results if r.name == "legal" and r.outcome == "failed"]
    legal = f"illegal: {'; '.join(broken)}" if broken else "legal"
    return f"{legal}, {fit_words(own)} | {own.fits_probability:.0%}"


def _difference(own: Prediction, ours: Prediction) -> str:
    ratio = ours.step_seconds.p50 / own.step_seconds.p50 - 1.0
    overlap = (
        ours.step_seconds.p90 >= own.step_seconds.p10
        and own.step_seconds.p90 >= ours.step_seconds.p10
    )
    return f"{ratio:+.1%}" + (" (intervals overlap)" if overlap else "")


def _why(own: Prediction, plan: Plan) -> str:
    if abs(plan.prediction.step_seconds.p50 / own.step_seconds.p50 - 1.0) < _SAME:
        return "as fast"
    causes = [
        f"{cause.name.replace('_', ' ')} {_signed(cause.difference_seconds)}"
        for cause in step_causes(own, plan.prediction)
    ]
    return ", ".join(causes[:3])


def _signed(seconds: float) -> str:
    return f"{seconds:+.2f} s" if abs(seconds) < 10.0 else f"{seconds:+.0f} s"


def _exported(recipes: list[Recipe]) -> int:
    """Return how many plans are exported to their framework with all that they choose."""
    count = 0
    for recipe in recipes:
        if not isinstance(recipe.answer, Plan):
            continue
        framework = recipe.answer.job.resolved.framework
        if framework is not None:
            said = export(recipe.answer, framework.value).strategy
            count += _choices(said) == _choices(recipe.answer.strategy)
    return count


def _choices(strategy: Strategy) -> Strategy:
    """Return a strategy without the names of its devices, which no file says."""
    stages = tuple(one.model_copy(update={"device_group": None}) for one in strategy.stages or ())
    return strategy.model_copy(update={"stages": stages})


def _simpler(plans: list[Plan]) -> str:
    """Return how many plans are not the fastest, and by how much those are faster at most."""
    ratios = [
        plan.prediction.step_seconds.p50 / said.fastest_step_seconds - 1.0
        for plan in plans
        if (said := plan.certificate.simplicity) is not None and said.fastest != plan.strategy
    ]
    if not ratios:
        return "Each is the fastest as well"
    return f"{len(ratios)} are not the fastest, and take {max(ratios):.1%} longer at most"


def _page(recipes: list[Recipe], seconds: float) -> str:
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    plans = [r.answer for r in recipes if isinstance(r.answer, Plan)]
    sources = dict.fromkeys(
        f"- {r.case.run.model} on {r.case.run.num_gpus} x {r.case.run.gpu}: {r.case.run.source}"
        for r in recipes
    )
    return _PAGE.format(
        today=today,
        seconds=seconds,
        count=len(recipes),
        planned=len(plans),
        proven=sum(plan.certificate.status == "optimal" for plan in plans),
        chance=percent(Limits().fits_probability or 0.0),
        tolerance=percent(Limits().simplicity_ratio),
        simpler=_simpler(plans),
        exported=_exported(recipes),
        rows="\n".join(_row(recipe) for recipe in recipes),
        sources="\n".join(sources),
    )


_PAGE = """# Published recipes

{count} parallel configurations that their publishers ran, each checked, priced, and held against
the plan that a user gets for the same model, GPUs, batch, precision and framework, with all limits
as they are by default. Made on {today} by

    python -m benchmarks.recipes RUNS --write

where `RUNS` is a [file of measured runs](measured-runs.md); the search had {seconds:g} s for each.
A recipe is the first run of a model on a GPU that a publisher lists and that can be priced, on 8 to
64 GPUs, three of each publisher; none was left out for its result.

Plans have to fit with a chance of {chance} (`limits.fits_probability`), and are the simplest
within {tolerance} of the fastest (`limits.simplicity_ratio`). The recipes ran, however little room
they left: one that *is too tight* is likely to fit, but less so than a plan has to be. Plans with
adapters (MLPerf's) are for no framework, since Megatron-LM by itself trains none.

**Nobody ran our plans on these machines.** The step that was measured is the publisher's; the other
two are predictions of one cost model, whose errors are in [accuracy](accuracy.md). A difference
inside the intervals of the two (p10 to p90) says nothing, and is marked. The last column has the
parts of the step that differ most. An empty cell is a step that the source does not state.

A plan was found for {planned}, and for {proven} it is proven which is the fastest that the
framework's configuration can say. {simpler}.
{exported} are exported to Megatron-LM or torchtitan
with every choice of theirs; what else a job says and no file of a framework can is named by its
[export](exports.md).

| model | GPUs | recipe | check | chance | measured | predicted | plan | chance | step | because |
|---|---|---|---|---|---|---|---|---|---|---|
{rows}

A recipe may be found illegal or not to fit and have run all the same: the row may leave open what
the run did (its recomputing, its offload), or the memory of the model may be overestimated.

## Sources

{sources}
"""

if __name__ == "__main__":
    main()
