"""Views: what a person reads holds the facts, and survives odd content."""

import io

import pytest
from rich.console import Console, RenderableType

from planner.answers.comparison import compare
from planner.cli.views.bars import bar
from planner.cli.views.comparison import comparison_view, shown
from planner.cli.views.demo import falling_line, losses_line, measured_table, plans_table
from planner.cli.views.estimates import degrees, estimates_view
from planner.cli.views.plan import answer_view, estimate_view, memory_table
from planner.errors import InputError
from planner.schema.plan import (
    Alternative,
    Estimate,
    Explanation,
    Infeasible,
    Overflow,
    Relaxation,
    SimulatedStep,
)
from planner.schema.run import RankReport, RunReport
from planner.units import GIB
from tests.builders import a_certificate, a_plan, a_prediction, a_stage_prediction, a_strategy


def text_of(renderable: RenderableType) -> str:
    """Return what a wide terminal without colours shows."""
    console = Console(file=io.StringIO(), width=160, highlight=False)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined]


def an_estimate(**changes: object) -> Estimate:
    """The tiny plan's strategy, estimated."""
    plan = a_plan()
    fields = {
        "model": plan.model,
        "cluster": plan.cluster,
        "job": plan.job,
        "strategy": plan.strategy,
        "prediction": plan.prediction,
        "planner_version": plan.planner_version,
    }
    return Estimate(**{**fields, **changes})


def an_infeasible(**changes: object) -> Infeasible:
    """An answer without a plan: memory binds, more devices would help."""
    plan = a_plan()
    overflow = Overflow(
        description="tp 8, pp 1",
        limit="device_memory",
        stage=0,
        required_bytes=96.0 * GIB,
        capacity_bytes=76.0 * GIB,
        reason="parameters alone exceed the device",
    )
    relaxation = Relaxation(
        field="cluster.node_groups.0.node_count",
        given=1,
        needed=2,
        description="2 nodes instead of 1",
    )
    fields = {
        "id": "answer-1",
        "model": plan.model,
        "cluster": plan.cluster,
        "job": plan.job,
        "configurations_total": 24,
        "binding": (overflow,),
        "relaxations": (relaxation,),
        "planner_version": "0.1.0",
    }
    return Infeasible(**{**fields, **changes})


def a_report(**changes: object) -> RunReport:
    """Two ranks, one per stage, four steps."""
    ranks = tuple(
        RankReport(
            rank=stage,
            stage=stage,
            mesh={"pp": stage},
            parameter_bytes=1.0,
            peak_memory_bytes=4.25 * (1 + stage) * GIB,
            peak_memory_kind="live_tensors",
            step_seconds=(2.0, 2.0),
        )
        for stage in range(2)
    )
    fields = {
        "plan_id": "plan-1",
        "device": "cpu",
        "backend": "gloo",
        "world_size": 2,
        "status": "completed",
        "losses": (5.0, 4.0, 3.5, 3.0),
        "median_step_seconds": 2.0,
        "predicted_step_seconds": 1.0,
        "ranks": ranks,
        "predicted_peak_memory_bytes": (1.0, 1.0),
        "torch_version": "2.13.0",
    }
    return RunReport(**{**fields, **changes})


@pytest.mark.parametrize(
    "fact",
    [
        "plan-0123456789abcdef",
        "tiny (4 blocks, hidden 64) on 8xh100-sxm5-80gb (8 devices)",
        "batch 16 x 128 tokens, bf16, adamw, torch",
        "1 s a step (900 ms to 1.2 s), 256 tokens/s per device, MFU 41.0%",
        "$2.5 per million tokens",
        "memory fits (chance 99.0%)",
        "compute 600 ms 60.0%",
        "proven optimal in the searched space: no configuration is under 1 s",
        "100 configurations, 96 pruned by bounds, 3 branched on, 4 programs by HiGHS, 60 ms",
        "Built by hand for tests.",
    ],
)
def test_plan_view_holds_the_fact(fact):
    words = " ".join(text_of(answer_view(a_plan())).split())
    assert fact in words


@pytest.mark.parametrize(
    ("make", "view"),
    [(a_plan, answer_view), (an_estimate, estimate_view), (an_infeasible, answer_view)],
)
def test_warnings_stand_in_every_answer(make, view):
    assert "warning: the network was assumed" in text_of(
        view(make(warnings=("the network was assumed",)))
    )


@pytest.mark.parametrize(
    ("make", "view"), [(an_estimate, estimate_view), (an_infeasible, answer_view)]
)
def test_assumptions_stand_in_answers_that_have_no_explanation(make, view):
    assert "assumed: a length of 8" in text_of(view(make(assumptions=("a length of 8",))))


def test_parts_of_the_step_that_take_no_time_are_left_out():
    assert "context parallel 0" not in " ".join(text_of(answer_view(a_plan())).split())
    assert "offload exposed" not in text_of(answer_view(a_plan()))


def test_memory_row_adds_up_to_the_peak():
    row = text_of(memory_table(a_prediction())).splitlines()[-1]
    figures = [float(word) for word in row.split()[1:9]]
    assert figures[:7] == [2.0, 1.0, 3.0, 1.5, 0.5, 2.0, 10.0]
    assert sum(figures[:6]) == figures[6]


def test_plan_without_proof_of_optimality_says_how_far_it_may_be():
    plan = a_plan(certificate=a_certificate(status="feasible", gap_ratio=0.034))
    assert "within 3.40% of the best possible" in text_of(answer_view(plan))


def test_plan_that_time_ended_says_that_more_may_help():
    late = a_certificate(status="feasible", gap_ratio=0.034, solve_seconds=19.4)
    text = text_of(answer_view(a_plan(certificate=late)))
    assert "ended the search: more --solver-seconds may close the gap" in text
    assert "ended the search" not in text_of(answer_view(a_plan()))


def test_gap_that_another_end_left_is_not_laid_to_the_time():
    early = a_certificate(status="feasible", gap_ratio=0.034, solve_seconds=2.0)
    assert "ended the search" not in text_of(answer_view(a_plan(certificate=early)))


@pytest.mark.parametrize(
    ("total", "words"),
    [
        (0, "no configuration is legal: the rules below refuse them"),
        (1, "no plan of the only configuration fits with a chance of 95%"),
        (24, "none of 24 configurations fits with a chance of 95%"),
    ],
)
def test_infeasible_view_says_how_many_were_legal(total, words):
    assert words in text_of(answer_view(an_infeasible(configurations_total=total)))


def test_reasons_are_listed():
    explanation = Explanation(
        summary="Fast.",
        binding_constraints=("memory of stage 0",),
        runners_up=(Alternative(description="tp 4", step_seconds=1.5, is_lower_bound=True),),
        assumptions=("dense [not sparse]",),
    )
    text = text_of(answer_view(a_plan(explanation=explanation)))
    assert "binds: memory of stage 0" in text
    assert "runner-up: tp 4: at least 1.5 s" in text
    assert "assumed: dense [not sparse]" in text


def test_infeasible_view_names_what_binds_and_what_helps():
    text = " ".join(text_of(answer_view(an_infeasible())).split())
    assert "none of 24 configurations fits" in text
    assert "tp 8, pp 1 device memory 96 GiB 76 GiB parameters alone exceed the device" in text
    assert "• 2 nodes instead of 1" in text


def test_infeasible_view_admits_that_nothing_helps():
    assert "neither a single change nor a pair" in text_of(
        answer_view(an_infeasible(relaxations=()))
    )


def test_estimate_that_does_not_fit_says_so():
    estimate = an_estimate(prediction=a_prediction(fits=False, fits_probability=0.01))
    assert "does not fit (chance 1.0%, 95% asked for)" in text_of(estimate_view(estimate))


def test_estimate_that_is_likely_to_fit_but_less_than_was_asked_for_is_too_tight():
    estimate = an_estimate(prediction=a_prediction(fits=False, fits_probability=0.829))
    text = text_of(estimate_view(estimate))
    assert "is too tight (chance 82.9%, 95% asked for)" in text


def test_square_brackets_in_names_are_text_and_not_markup():
    model = a_plan().model
    odd = model.model_copy(update={"resolved": model.resolved.model_copy(update={"name": "[/b]x"})})
    assert "[/b]x" in text_of(answer_view(a_plan(model=odd)))


def test_estimates_have_one_row_each_and_errors_keep_their_place():
    error = InputError("divides nothing", field="tensor_parallel_degree", value=3, remedy="use 4")
    lines = text_of(estimates_view([an_estimate(), error])).splitlines()
    assert lines[1].split()[:7] == ["0", "tp", "2,", "pp", "2,", "dp", "2,"]
    assert "tensor_parallel_degree: divides nothing (got 3); use 4" in lines[2]


def test_degrees_of_one_are_not_worth_a_word():
    single = a_strategy(
        tensor_parallel_degree=1, pipeline_parallel_degree=1, data_parallel_shard_degree=1
    )
    assert degrees(single) == "16 x 1"


def test_comparison_shows_value_and_delta():
    slow = a_prediction(model_flop_utilization=0.205)
    text = " ".join(text_of(comparison_view(compare([a_plan(), a_plan(prediction=slow)]))).split())
    assert "model FLOP utilization 41.0% 20.5% -50.0%" in text


def test_comparison_of_equals_says_so():
    assert "no differences" in text_of(comparison_view(compare([a_plan(), a_plan()])))


def test_comparison_warns_when_the_questions_differ():
    other = a_plan(job=a_plan().job.model_copy(update={"digest": "x"}))
    assert "the jobs differ" in text_of(comparison_view(compare([a_plan(), other])))


def test_plans_of_one_job_within_other_limits_are_said_to_be_that():
    other = a_plan(job=a_plan().job.model_copy(update={"digest": "x"}))
    text = text_of(comparison_view(compare([a_plan(), other]), one_work=True))
    assert "the same job, searched within different limits" in text
    assert "different questions" not in text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "seconds", "-"),
        (0.5, "seconds", "500 ms"),
        (2.0 * GIB, "bytes", "2 GiB"),
        (0.25, "ratio", "25.0%"),
        (1234.5, "tokens_per_second", "1,234"),
        (2.5, "currency", "$2.5"),
        ("gpipe", None, "gpipe"),
        (4, None, "4"),
    ],
)
def test_values_are_shown_in_their_unit(value, unit, text):
    assert shown(value, unit) == text


@pytest.mark.parametrize(
    ("ratio", "text"), [(0.0, ""), (1.0, "█" * 20), (7.0, "█" * 20), (0.5, "█" * 10), (0.05, "█")]
)
def test_bar_is_as_long_as_its_ratio(ratio, text):
    assert bar(ratio).plain == text


def test_bar_shows_eighths_of_a_column():
    assert bar(1.5 / 20).plain == "█▌"


def test_falling_losses_fall_on_the_line():
    assert falling_line([8.0, 4.5, 1.0]) == "█▅▁"


def test_constant_losses_are_a_flat_line():
    assert falling_line([2.0, 2.0]) == "▁▁"


def test_losses_line_has_its_ends_and_its_ranks():
    line = losses_line(a_report())
    assert line.endswith("5.000 → 3.000 in 4 steps on 2 ranks (gloo)")


def test_measured_stands_beside_predicted():
    lines = [
        " ".join(line.split())
        for line in text_of(measured_table(a_plan(), a_report())).splitlines()
    ]
    assert lines[1] == "step (median) 1 s 900 ms to 1.2 s 2 s 2.00"
    assert lines[2] == "peak of tensors, stage 0 8.5 GiB 4.25 GiB 0.50"
    assert lines[3] == "peak of tensors, stage 1 8.5 GiB 8.5 GiB 1.00"


def test_memory_that_was_not_measured_is_not_shown():
    ranks = tuple(rank.model_copy(update={"peak_memory_bytes": None}) for rank in a_report().ranks)
    assert "peak of" not in text_of(measured_table(a_plan(), a_report(ranks=ranks)))


def test_plans_table_names_strategy_speed_and_proof():
    row = " ".join(text_of(plans_table([a_plan()])).splitlines()[1].split())
    assert row == "tiny 8xh100-sxm5-80gb tp 2, pp 2, dp 2, 8 x 1 1 none 1 s 41.0% 10 GiB optimal"


def test_stage_over_its_capacity_is_drawn_full():
    over = a_prediction(stages=(a_stage_prediction(capacity_bytes=5.0 * GIB),), fits=False)
    assert "█" * 20 in text_of(estimate_view(an_estimate(prediction=over)))


def test_a_simulated_step_says_what_the_closed_form_would():
    step = SimulatedStep(
        step_seconds=0.8, closed_form_error_ratio=0.25, bubble_ratio=0.125, stages=()
    )
    text = text_of(estimate_view(an_estimate(prediction=a_prediction(simulated=step))))
    assert "simulated event by event (closed form +25.0%), bubble 12.5%" in text


def test_predictions_of_before_say_nothing_of_a_simulation():
    assert "simulated" not in text_of(estimate_view(an_estimate()))
