"""A run of which it is not known what it ran on has one prediction, with what that adds to it."""

from __future__ import annotations

import math

import pytest

from planner.schema.measured_run import MeasuredRun
from planner.schema.plan import Interval, IntervalCause, Prediction
from planner.validation.mixture import mixed_prediction
from planner.validation.report import compared
from planner.validation.row import run_comparison
from tests.builders import a_prediction
from tests.measured_rows import TORCHTITAN

UNKNOWN = "the stack of this run is not known"


def a_step(seconds: float, **widths: float) -> Prediction:
    """A prediction whose causes have these half widths, in logarithms."""
    width = math.sqrt(sum(one**2 for one in widths.values()))
    spread = math.exp(width)
    return a_prediction(
        step_seconds=Interval(p10=seconds / spread, p50=seconds, p90=seconds * spread),
        interval_causes=tuple(
            IntervalCause(cause=name, ratio=math.expm1(one)) for name, one in widths.items()
        ),
    )


def test_a_mixture_has_the_causes_of_each_and_what_they_differ_by() -> None:
    """1 and 4 s: log 2 to either side of 2 s, 0.8883 with 1.2816 deviations, which is 143 %.

    Squares: 0.09 of both, half of 0.16 of one, and 0.7891; 0.9591 in all, and exp(0.9793) = 2.663.
    """
    found = mixed_prediction([a_step(1.0, a=0.3), a_step(4.0, a=0.3, b=0.4)], unknown=UNKNOWN)

    ratios = {one.cause: one.ratio for one in found.interval_causes}
    assert list(ratios) == ["a", "b", UNKNOWN]
    assert ratios["a"] == pytest.approx(math.exp(0.3) - 1)
    assert ratios["b"] == pytest.approx(math.exp(math.sqrt(0.08)) - 1)
    assert ratios[UNKNOWN] == pytest.approx(1.431, rel=1e-3)
    assert found.step_seconds.p50 == pytest.approx(2.0)
    assert found.step_seconds.p90 == pytest.approx(2.0 * 2.663, rel=1e-3)


def test_one_prediction_stays_as_it_is() -> None:
    only = a_step(1.0, a=0.3)
    assert mixed_prediction([only], unknown=UNKNOWN) is only


@pytest.mark.parametrize(
    ("framework", "network", "said"),
    [
        ("torchtitan", "8x400 Gb/s per node", None),
        ("zero1", "8x400 Gb/s per node", UNKNOWN),
        ("torchtitan", "InfiniBand", "the network of this run is not known"),
        ("zero1", "InfiniBand", "the stack and the network of this run are not known"),
    ],
)
def test_a_row_says_what_was_not_known_of_it(
    framework: str, network: str, said: str | None
) -> None:
    row = {**TORCHTITAN, "framework": framework, "sharding": None, "interconnect": network}
    (found,) = compared([MeasuredRun.model_validate(row)])
    answer = run_comparison(found)

    unknown = [one for one in answer.interval_causes if "not known" in one.cause]
    assert [one.cause for one in unknown] == ([] if said is None else [said])
    assert all(one.ratio > 0.01 for one in unknown)
    assumed = "framework not known: the mean of all stacks" in answer.assumptions
    assert assumed == (framework == "zero1")
