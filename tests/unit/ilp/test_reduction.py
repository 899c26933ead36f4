"""What plans below a cutoff cannot have, on chains worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from planner.ilp.instance import Instance, instance_of
from planner.ilp.reduction import Reduction, reduction
from tests.oracle import Chain, LayerOption, configuration_of, table_of


def a_chain(**changes: object) -> Chain:
    """Six blocks on two stages, kept (2 s, 4 bytes) or recomputed (3 s, 1 byte), two batches."""
    block = (LayerOption(pace=2, static=4), LayerOption(pace=3, static=1))
    plain = Chain(
        stage_count=2,
        micro_batch_count=2,
        embedding=(LayerOption(pace=0),),
        runs=((6, block),),
        head=(LayerOption(pace=0),),
        capacity=100,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def instance(chain: Chain) -> Instance:
    return instance_of(table_of([chain]), 0, configuration_of(chain))


def reduced(chain: Chain, cutoff: float) -> Reduction:
    found = reduction(instance(chain), cutoff_seconds=cutoff)
    assert found is not None
    return found


def test_a_cutoff_at_the_optimum_leaves_even_stages_and_kept_blocks() -> None:
    """Six blocks of 2 s: 12 s through all stages and the slower one, 6 s, again."""
    found = reduced(a_chain(), 18.0)
    assert found.cuts.earliest.tolist() == [0, 3, 6]
    assert found.cuts.latest.tolist() == [0, 3, 6]
    assert found.most[1].tolist() == [[3, 0], [3, 0]]


def test_a_cutoff_below_the_optimum_leaves_nothing() -> None:
    assert reduction(instance(a_chain()), cutoff_seconds=17.9) is None


def test_a_wider_cutoff_leaves_wider_windows() -> None:
    """Four and two blocks make 12 + 8 = 20 s; one and five, 22 s, are beyond."""
    found = reduced(a_chain(), 20.0)
    assert found.cuts.earliest.tolist() == [0, 2, 6]
    assert found.cuts.latest.tolist() == [0, 4, 6]


def test_without_a_cutoff_memory_alone_leaves_windows() -> None:
    """Four bytes hold four recomputed blocks: two to four on each stage."""
    found = reduced(a_chain(capacity=4), inf)
    assert found.cuts.earliest.tolist() == [0, 2, 6]
    assert found.cuts.latest.tolist() == [0, 4, 6]


def test_a_block_too_large_for_what_the_others_leave_is_dropped() -> None:
    """Three bytes hold three recomputed blocks; a kept one of 4 fits nowhere."""
    found = reduced(a_chain(capacity=3), inf)
    assert found.most[1].tolist() == [[0, 3], [0, 3]]


def test_a_choice_dominated_on_one_stage_stays_on_the_others() -> None:
    """With one batch in flight the faster choice is the smaller too; with two it is larger."""
    block = (
        LayerOption(pace=2, static=3, activation=0),
        LayerOption(pace=1, static=0, activation=2),
    )
    found = reduced(a_chain(runs=((6, block),)), inf)
    assert (found.most[1][1] > 0).tolist() == [False, True]
    assert (found.most[1][0] > 0).tolist() == [True, True]


def test_layers_of_a_run_stay_where_its_place_in_the_chain_allows() -> None:
    """1, 1, 10, 10: cut after the third, 12 + 10 and 12 again; before it, a stage holds 20."""
    light, heavy = (LayerOption(pace=1),), (LayerOption(pace=10),)
    chain = a_chain(runs=((2, light), (2, heavy)))
    found = reduced(chain, 34.0)
    assert found.cuts.earliest.tolist() == [0, 3, 4]
    assert found.most[1].tolist() == [[2], [0]]
    assert found.most[2].tolist() == [[1], [1]]
