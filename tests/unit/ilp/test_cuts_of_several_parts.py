"""Loads of ranks that hold several parts of a chain, against all ways to cut it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pytest

from planner.ilp import cut_point_graph
from planner.ilp.cut_point_graph import (
    RankMoves,
    cuts_with_loads,
    moves_by_segments,
    moves_by_sums,
    rank_moves_along,
    rank_moves_of,
)
from planner.ilp.instance import Instance, Kind, load_of_cuts
from planner.ilp.lagrangian_bound import everything
from planner.ilp.problem import TooManyError
from planner.ilp.stage_loads import Load, as_loads, held_of
from tests.draws import drawn

ONE_OF = 7
SEEDS = drawn(range(250), one_of=ONE_OF)
CHAINS = ("01", "001", "0001", "01101", "0112", "012", "10")


def an_instance(holders: tuple[int, ...], chain: list[int]) -> Instance:
    """Layers that cost nothing, in the order of `chain`."""
    stages = max(holders) + 1
    nothing = np.zeros((stages, 1))
    kinds = tuple(
        Kind(
            count=chain.count(k),
            pinned_stage=None,
            pace=nothing,
            fill=nothing,
            end=nothing,
            memory=nothing,
            transient=nothing,
            host=nothing,
            kept=nothing,
            choice=(0,),
        )
        for k in range(max(chain) + 1)
    )
    return Instance(
        repeat_count=1.0,
        stage_pace=np.zeros(stages),
        stage_fill=np.zeros(stages),
        stage_bytes=np.zeros(stages),
        stage_end=np.zeros(stages),
        capacity_bytes=np.ones(stages),
        host_capacity_bytes=np.ones(stages),
        least_blocks=len(holders) // stages,
        holders=holders,
        kinds=kinds,
        chain=tuple((kind, 1) for kind in chain),
    )


def a_random_instance(seed: int) -> Instance:
    """2 to 4 ranks, in turns or in a V; a repeated pattern behind some odd blocks, or none."""
    numbers = np.random.default_rng(seed)
    ranks = tuple(range(int(numbers.integers(2, 5))))
    holders = ranks + ranks[::-1] if numbers.integers(2) else ranks * int(numbers.integers(2, 4))
    blocks = len(holders) + int(numbers.integers(0, 4))
    pattern = [int(digit) for digit in numbers.choice(CHAINS)]
    odd = [2] * int(numbers.integers(0, 3)) if numbers.integers(2) else []
    chain = (odd + pattern * blocks)[:blocks]
    if numbers.integers(4) == 0:
        chain = [int(kind) for kind in numbers.integers(0, 3, size=blocks)]
    names = {kind: place for place, kind in enumerate(sorted(set(chain)))}
    return an_instance(holders, [names[kind] for kind in chain])


def loads_of(instance: Instance) -> list[list[Load]]:
    """What each rank may hold."""
    held = held_of(instance, everything(instance), most=10_000)
    assert held is not None
    return list(map(as_loads, held))


def loads_of_all_cuts(instance: Instance) -> set[tuple[Load, ...]]:
    """What ranks hold under every way to cut the chain."""
    blocks = instance.block_count
    found = set()
    for inner in combinations(range(1, blocks), len(instance.holders) - 1):
        loads = load_of_cuts(instance, (0, *inner, blocks))
        found.add(tuple(tuple(load) for load in loads))
    return found


def loads_of_all_ways(
    rank_moves: list[RankMoves], loads: list[list[Load]], state: int = 0
) -> Iterator[tuple[Load, ...]]:
    """What ranks hold along every way through the steps."""
    if not rank_moves:
        yield ()
        return
    for move in np.flatnonzero(rank_moves[0].before == state).tolist():
        for rest in loads_of_all_ways(rank_moves[1:], loads[1:], int(rank_moves[0].after[move])):
            yield (loads[0][int(rank_moves[0].load[move])], *rest)


@pytest.mark.parametrize("seed", SEEDS)
def test_ways_are_those_to_cut_the_chain(seed: int) -> None:
    instance = a_random_instance(seed)
    windows = everything(instance)
    loads = loads_of(instance)
    rank_moves = rank_moves_of(instance, windows, loads, sums_most=0)
    assert rank_moves is not None
    assert set(loads_of_all_ways(rank_moves, loads)) == loads_of_all_cuts(instance)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rank_has_the_loads_that_some_cuts_leave_it(seed: int) -> None:
    """Both neighbours' room is theirs alone: no load is lost, and few more are listed."""
    instance = a_random_instance(seed)
    loads = loads_of(instance)
    for rank, own in enumerate(loads):
        real = {found[rank] for found in loads_of_all_cuts(instance)}
        assert real <= set(own)
        assert len(own) == len(set(own))


def test_sums_take_over_where_states_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums know no order, so that they have all ways to cut the chain and more."""
    instance = an_instance((0, 1, 2, 2, 1, 0), [0, 1] * 5)
    windows = everything(instance)
    loads = loads_of(instance)
    monkeypatch.setattr(cut_point_graph, "moves_by_parts", lambda *_: None)
    with pytest.raises(TooManyError):
        rank_moves_of(instance, windows, loads, sums_most=0)
    rank_moves = rank_moves_of(instance, windows, loads, sums_most=10_000)
    assert rank_moves is not None
    assert set(loads_of_all_ways(rank_moves, loads)) > loads_of_all_cuts(instance)


def test_plain_sums_take_over_where_guesses_of_segments_have_too_many_moves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance = an_instance((0, 1) * 3, [0] * 8 + [1] * 8)
    loads = loads_of(instance)
    guessed = sum(len(own.load) for own in moves_by_segments(instance, loads, most=100_000))
    plain = sum(len(own.load) for own in moves_by_sums(instance, loads))
    assert plain < guessed
    monkeypatch.setattr(cut_point_graph, "moves_by_parts", lambda *_: None)
    rank_moves = rank_moves_of(instance, everything(instance), loads, sums_most=guessed - 1)
    assert rank_moves is not None
    assert set(loads_of_all_ways(rank_moves, loads)) > loads_of_all_cuts(instance)


@pytest.mark.parametrize("seed", range(30))
def test_cuts_of_a_long_chain_are_found_by_what_ranks_hold(seed: int) -> None:
    """Eleven ranks hold two parts each of a hybrid chain: too many ways to try them all."""
    numbers = np.random.default_rng(seed)
    chain = [0, 0, 0, *([1, 2, 0, 0, 0, 0] * 10), 0]
    instance = an_instance(tuple(range(11)) * 2, chain)
    inner = np.sort(numbers.choice(np.arange(1, len(chain)), 21, replace=False))
    loads = [tuple(load) for load in load_of_cuts(instance, (0, *inner.tolist(), len(chain)))]
    cuts, _ = cuts_with_loads(instance, loads)
    assert cuts is not None
    assert [tuple(load) for load in load_of_cuts(instance, cuts)] == loads


@pytest.mark.parametrize("seed", range(30))
def test_cuts_of_many_parts_a_rank_are_found_one_by_one(seed: int) -> None:
    """Two ranks hold eight parts each: too many places at once for the walk over ranks."""
    numbers = np.random.default_rng(seed)
    chain = [0] * 24 + [1] * 24
    instance = an_instance((0, 1) * 8, chain)
    inner = np.sort(numbers.choice(np.arange(1, len(chain)), 15, replace=False))
    loads = [tuple(load) for load in load_of_cuts(instance, (0, *inner.tolist(), len(chain)))]
    cuts, _ = cuts_with_loads(instance, loads)
    assert cuts is not None
    assert [tuple(load) for load in load_of_cuts(instance, cuts)] == loads


@pytest.mark.parametrize("seed", SEEDS)
def test_loads_that_no_cuts_leave_to_the_ranks_are_known(seed: int) -> None:
    """One block is moved from a rank to another: some cuts leave that, or it is said that none."""
    instance = a_random_instance(seed)
    real = loads_of_all_cuts(instance)
    numbers = np.random.default_rng(seed)
    for held in sorted(real)[:: max(len(real) // 4, 1)]:
        moved = [list(load) for load in held]
        giver, taker = numbers.choice(len(held), 2, replace=False)
        kind = int(np.argmax(moved[giver]))
        moved[giver][kind] -= 1
        moved[taker][kind] += 1
        wanted = tuple(tuple(load) for load in moved)
        assert cuts_with_loads(instance, held)[0] is not None
        cuts, is_certain = cuts_with_loads(instance, wanted)
        assert is_certain
        assert (cuts is None) == (wanted not in real)


def ways_by_segments(instance: Instance) -> set[tuple[Load, ...]]:
    """What ranks hold along all ways where the ends of segments are guessed."""
    loads = loads_of(instance)
    rank_moves = rank_moves_along(moves_by_segments(instance, loads, most=100_000))
    assert rank_moves is not None
    return set(loads_of_all_ways(rank_moves, loads))


@pytest.mark.parametrize("seed", SEEDS)
def test_no_way_to_cut_the_chain_is_lost_where_the_ends_of_segments_are_guessed(seed: int) -> None:
    instance = a_random_instance(seed)
    assert ways_by_segments(instance) >= loads_of_all_cuts(instance)


@pytest.mark.parametrize("seed", SEEDS)
def test_ways_through_runs_of_one_kind_each_are_those_to_cut_the_chain(seed: int) -> None:
    numbers = np.random.default_rng(seed)
    ranks = tuple(range(int(numbers.integers(2, 5))))
    holders = ranks + ranks[::-1] if numbers.integers(2) else ranks * int(numbers.integers(2, 4))
    runs = numbers.integers(1, 7, size=int(numbers.integers(2, 4))).tolist()
    runs[0] += max(len(holders) - sum(runs), 0)
    instance = an_instance(holders, [kind for kind, count in enumerate(runs) for _ in range(count)])
    assert ways_by_segments(instance) == loads_of_all_cuts(instance)


def test_ranks_in_turns_hold_about_as_many_parts_of_a_segment() -> None:
    instance = an_instance((0, 1) * 3, [0] * 6 + [1] * 6)
    loads: list[list[Load]] = [[(1, 5), (3, 3)], [(5, 1), (3, 3)]]
    rank_moves = rank_moves_along(moves_by_segments(instance, loads, most=100))
    assert rank_moves is not None
    assert set(loads_of_all_ways(rank_moves, loads)) == {((3, 3), (3, 3))}
