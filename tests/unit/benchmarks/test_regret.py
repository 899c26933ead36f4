"""The regret benchmark: its grid is legal, and its statistics are right."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="no package torch")

from benchmarks.regret import job_of
from benchmarks.regret_grid import Entrant, entrants
from benchmarks.regret_models import contests
from benchmarks.regret_results import (
    Finish,
    Result,
    biases,
    label,
    meets_bars,
    spearman,
    table,
)
from planner.importers.clusters import cluster_from_short_form
from planner.requests.resolution import cluster_document, model_document
from planner.schema.strategy import Strategy
from planner.schema.trial import Trial, typical_seconds


def test_six_models_have_names_of_their_own() -> None:
    assert len({contest.name for contest in contests()}) == 6


def test_the_grid_holds_every_layout_once_and_only_what_is_legal() -> None:
    contest = contests()[0]
    cluster = cluster_document("4xcpu-gloo", cluster_from_short_form("4xcpu-gloo"))
    model = model_document(contest.name, contest.graph)
    found = entrants(model, cluster, job_of(contest))
    layouts = {
        (s.tensor_parallel_degree, s.pipeline_parallel_degree, s.shard_degree)
        for s in (item.strategy for item in found)
    }
    assert layouts == {(1, 1, 4), (2, 1, 2), (4, 1, 1), (1, 2, 2), (1, 4, 1), (2, 2, 1)}
    assert len({item.strategy.model_dump_json() for item in found}) == len(found)
    assert all(item.predicted_seconds > 0 for item in found)


@pytest.mark.parametrize(
    ("first", "second", "correlation"),
    [
        ([1.0, 2.0, 3.0], [10.0, 20.0, 400.0], 1.0),
        ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0], -1.0),
        # ranks 0, 1.5, 1.5, 3 against 0, 1, 2, 3: 4.5 / sqrt(4.5 x 5)
        ([1.0, 2.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0], 0.9486832980505138),
        ([1.0, 1.0], [1.0, 2.0], 0.0),
    ],
)
def test_ranks_are_correlated(first: list[float], second: list[float], correlation: float) -> None:
    assert spearman(first, second) == pytest.approx(correlation)


def _result(chosen_seconds: float) -> Result:
    strategy = Strategy(data_parallel_degree=4).resolved(block_count=4, global_batch_size=8)
    finishes = [
        Finish(
            entrant=Entrant(strategy=strategy, predicted_seconds=predicted),
            seconds=seconds,
            is_chosen=is_chosen,
        )
        for predicted, seconds, is_chosen in (
            (1.0, chosen_seconds, True),
            (2.0, 1.0, False),
            (3.0, 2.0, False),
        )
    ]
    ordered = tuple(sorted(finishes, key=lambda finish: finish.seconds))
    return Result(contest=contests()[0], finishes=ordered, refusals=())


def test_regret_is_the_chosen_step_over_the_best() -> None:
    assert _result(1.1).regret == pytest.approx(1.1)
    assert _result(0.5).regret == 1.0


def test_bars_are_of_mean_worst_and_correlation() -> None:
    assert meets_bars([_result(0.5)])
    assert not meets_bars([_result(0.5), _result(1.2)])
    assert not meets_bars([])


def test_the_table_names_the_choice() -> None:
    lines = list(table([_result(0.5)]))
    assert "| dense-wide | 3 | dp4 zero0 mb1x2 |" in lines[2]
    assert "Mean regret 1.000 (bar 1.05)" in lines[-1]


def test_layouts_of_a_kind_are_held_against_what_was_predicted() -> None:
    """Measured over predicted of one: 2, 1/2 and 2/3, whose product has the cube root 0.87."""
    assert list(biases([_result(2.0)]))[2:] == ["| data parallel | 3 | 0.87 | 0.50 | 2.00 |"]


def test_a_label_says_what_tells_strategies_apart() -> None:
    strategy = Strategy(
        tensor_parallel_degree=2,
        pipeline_parallel_degree=2,
        micro_batch_size=2,
        activation_checkpointing="full",
    ).resolved(block_count=4, global_batch_size=8)
    assert label(strategy) == "tp2 pp2 zero0 ac-full blocks 2/2 mb2x4"


def test_a_slow_round_does_not_favour_those_that_missed_it() -> None:
    """The second round took twice as long for all that ran in it."""
    strategy = Strategy(data_parallel_degree=4)
    rows = [
        Trial(strategy=strategy, step_seconds=steps) for steps in ((1.0, 2.0), (1.2, 2.4), (1.1,))
    ]
    refused = Trial(strategy=strategy, refusal="cannot be")
    found = typical_seconds([*rows, refused])
    assert found[:3] == [pytest.approx(1.5), pytest.approx(1.8), pytest.approx(1.65)]
    assert found[3] is None
