"""Reports: the numbers of a group, and that every run is counted somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.importers.measured_runs import read_measured_runs, run_count
from planner.validation.comparison import Fit, Pair
from planner.validation.report import compared, validation_report
from planner.validation.summary import error_summary, fit_summary
from tests.draws import drawn
from tests.measured_rows import KORTHIKANTI, MIXTURE, TORCHTITAN, a_run

PUBLISHED = Path(__file__).parents[4] / "shared" / "data" / "measured_runs.jsonl"


def a_pair(predicted: float, measured: float = 100.0) -> Pair:
    """A prediction of so much, its interval 10 % to either side."""
    return Pair(predicted=predicted, measured=measured, p10=predicted / 1.1, p90=predicted * 1.1)


def test_errors_of_a_group() -> None:
    """Errors -20 %, +5 %, +10 %, +30 %; the third quartile and a bit of |error| is 27 %."""
    summary = error_summary([a_pair(80), a_pair(105), a_pair(110), a_pair(130)])
    assert summary is not None
    assert summary.mape_ratio == pytest.approx(0.1625)
    assert summary.median_ratio == pytest.approx(0.15)
    assert summary.p90_ratio == pytest.approx(0.27)
    assert summary.bias_ratio == pytest.approx(0.0625)
    assert summary.coverage_ratio == 0.5


def test_nothing_compared_has_no_errors() -> None:
    assert error_summary([]) is None
    assert fit_summary([]) is None


def test_fits_are_counted_by_prediction_and_outcome() -> None:
    """Three ran, one of which was refused; two ran out, one of them with a chance of 0.6."""
    given = [(0.95, True), (0.95, True), (0.4, True), (0.6, False), (0.4, False)]
    summary = fit_summary([Fit(probability, fitted) for probability, fitted in given])
    assert summary is not None
    assert (summary.fits_right, summary.fits_wrong) == (2, 1)
    assert (summary.out_of_memory_right, summary.out_of_memory_missed) == (1, 1)
    assert (summary.right_ratio, summary.missed_ratio) == (0.6, 0.5)
    assert (summary.likely_missed_ratio, summary.refused_ratio) == (0.0, pytest.approx(1 / 3))


def test_every_run_is_counted_once() -> None:
    unsaid = [a_run(mbs=None, gbs=128), a_run(KORTHIKANTI, gbs=None)]
    runs = [a_run(), a_run(KORTHIKANTI), a_run(precision="nvfp4"), *unsaid]
    report = validation_report(compared(runs))
    assert report.run_count == 5
    assert report.priced_count == 2
    assert {tally.name: tally.run_count for tally in report.unpriced} == {
        "precision": 1, "micro_batch": 1, "batch": 1,
    }  # fmt: skip


def test_runs_that_are_set_aside_are_counted_by_aspect() -> None:
    report = validation_report(compared([a_run(ready_time=False)]))
    assert {tally.name for tally in report.set_aside} == {
        "step: distrusted",
        "memory: not_measured",
    }


def test_groups_are_by_the_asked_key_and_subsets_are_always_there() -> None:
    report = validation_report(
        compared([a_run(), a_run(KORTHIKANTI), a_run(MIXTURE)]), by=["stack"]
    )
    (grouping,) = report.groupings
    assert [(group.name, group.run_count) for group in grouping.groups] == [
        ("megatron", 2),
        ("torch", 1),
    ]
    subsets = {group.name: group.run_count for group in report.subsets}
    assert subsets["all"] == 3
    assert subsets["dense bf16, from 3B"] == 1
    assert subsets["dense fp16, from 3B"] == 1
    assert subsets["mixture of experts"] == 1


def test_bulk_runs_stand_apart() -> None:
    report = validation_report(compared([a_run(tier="bulk"), a_run()]))
    subsets = {group.name: group.run_count for group in report.subsets}
    assert (subsets["all"], subsets["bulk"]) == (1, 1)


def test_regret_is_what_the_best_prediction_loses() -> None:
    """More micro-batches of a pipeline are predicted faster, and are said to be 10 % slower."""
    few = a_run(KORTHIKANTI, rank_group="g", mbs=8, step_time_s=20.0)
    many = a_run(KORTHIKANTI, rank_group="g", mbs=1, step_time_s=22.0)
    (group,) = validation_report(compared([few, many])).groupings[0].groups
    assert group.ranking is not None
    assert group.ranking.group_count == 1
    assert group.ranking.mean_regret_ratio == pytest.approx(0.1)


def test_a_choice_that_ran_out_of_memory_is_counted_as_dead() -> None:
    """The fastest prediction is chosen where it is likely to fit, and not where it is not."""
    slow = [a_run(rank_group="g", gbs=128, tokens_per_s_per_gpu=value) for value in (2000, 2100)]
    fast = a_run(
        rank_group="g", gbs=128, recompute="none", outcome="oom", tokens_per_s_per_gpu=None
    )
    slow = [run.model_copy(update={"recompute": "full"}) for run in slow]
    (group,) = validation_report(compared([*slow, fast])).groupings[0].groups
    assert group.ranking is not None
    refused = validation_report(compared([*slow, fast.model_copy(update={"gpu_mem_gb": 16.0})]))
    (other,) = refused.groupings[0].groups
    assert other.ranking is not None
    assert (group.ranking.died_count, other.ranking.died_count) == (1, 0)


def test_published_runs_are_priced_near_their_measurement() -> None:
    """One row of torchtitan's table and one of Korthikanti's, held to 15 %."""
    report = validation_report(compared([a_run(TORCHTITAN), a_run(KORTHIKANTI)]))
    step = report.subsets[0].step
    assert step is not None
    assert (step.count, step.mape_ratio) == (2, pytest.approx(0.0, abs=0.15))


@pytest.mark.slow
@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published runs are not here")
def test_published_runs_are_counted_whole() -> None:
    """At least five in six are priced, and the counts add up."""
    runs = list(read_measured_runs(PUBLISHED))
    assert len(runs) == run_count(PUBLISHED)
    some = [runs[place] for place in drawn(range(len(runs)), one_of=7)]
    report = validation_report(compared(some))
    unpriced = sum(tally.run_count for tally in report.unpriced)
    assert report.run_count == len(some) == report.priced_count + unpriced
    assert report.priced_count >= report.run_count * 5 / 6
