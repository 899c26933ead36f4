"""Programs that count virtual stages by themselves find what trying every plan finds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement, pairwise, product

import numpy as np

from planner.cost.configuration import Floats
from planner.ilp.formulation import Moments
from planner.ilp.instance import Assignment, Instance, Kind, evaluate, fits, load_of_cuts
from planner.ilp.milp import Optimum, Status, Within, optimise
from tests.draws import drawn, of_drawn
from tests.oracle import every_cut
from tests.small_chains import seeded_instance

SECONDS = 60.0
PLANS_MOST = 15_000
ONE_OF = 10
ALIKE = 2.0
MOMENTS = ((4, 0), (3, 1), (1, 3))


def moments_of(instance: Instance) -> Moments:
    """Two virtual stages a rank: at one moment the first holds more, at another the second."""
    ranks = instance.stage_count
    return Moments(held=[MOMENTS] * ranks, alike=[ALIKE] * ranks)


def plans(instance: Instance) -> Iterator[tuple[Assignment, list[Floats]]]:
    """Every plan, with what each rank's virtual stages keep of a micro-batch."""
    pinned = [k for k, kind in enumerate(instance.kinds) if kind.pinned_stage is not None]
    for cuts in every_cut(instance.block_count, len(instance.holders)):
        per_stage = [
            [
                list(combinations_with_replacement(range(len(instance.kinds[k].choice)), count))
                for k, count in enumerate(
                    np.bincount(
                        instance.block_kinds[first:last], minlength=len(instance.kinds)
                    ).tolist()
                )
            ]
            for first, last in pairwise(cuts)
        ]
        edges = [range(len(instance.kinds[k].choice)) for k in pinned]
        every = [list(product(*stage)) for stage in per_stage]
        for chosen in product(*every, *edges):
            yield taken(instance, cuts, chosen[: len(every)], chosen[len(every) :])


def taken(
    instance: Instance,
    cuts: tuple[int, ...],
    stages: tuple[tuple[tuple[int, ...], ...], ...],
    edges: tuple[int, ...],
) -> tuple[Assignment, list[Floats]]:
    """The plan in which virtual stages hold their kinds under such choices."""
    counts = tuple(
        np.zeros((instance.stage_count, len(kind.choice)), dtype=np.int64)
        for kind in instance.kinds
    )
    kept = [np.zeros(2) for _ in range(instance.stage_count)]
    seen = [0] * instance.stage_count
    for holder, own in zip(instance.holders, stages, strict=True):
        for k, choices in enumerate(own):
            for s in choices:
                counts[k][holder, s] += 1
                kept[holder][seen[holder]] += instance.kinds[k].kept[holder, s]
        seen[holder] += 1
    for k, part, s in ((0, 0, edges[0]), (len(instance.kinds) - 1, 1, edges[1])):
        rank = instance.kinds[k].pinned_stage
        assert rank is not None
        counts[k][rank, s] += 1
        kept[rank][part] += instance.kinds[k].kept[rank, s]
    return Assignment(counts=counts, cuts=cuts), kept


def plan_count(instance: Instance) -> int:
    """How many plans there are, about."""
    widest = max(len(kind.choice) for kind in instance.kinds)
    cuts = sum(1 for _ in every_cut(instance.block_count, len(instance.holders)))
    return int(cuts * widest ** (instance.block_count + 2))


def least(instance: Instance, loads: list[list[int]] | None = None) -> float:
    """The least step of plans that fit at every moment, of given loads if any; inf without."""
    best = float("inf")
    for assignment, kept in plans(instance):
        evaluation = evaluate(instance, assignment)
        more = [max(np.array(MOMENTS) @ own) - ALIKE * own.sum() for own in kept]
        over = evaluation.memory_bytes + np.maximum(more, 0.0) > instance.capacity_bytes + 1e-9
        if over.any() or not fits(instance, evaluation):
            continue
        if loads is None or load_of_cuts(instance, assignment.cuts) == loads:
            best = min(best, evaluation.step_seconds)
    return best


def small_ones() -> Iterator[tuple[int, Instance]]:
    """Instances whose ranks hold two parts of a chain, small enough to try every plan."""
    for seed in drawn(range(400), one_of=ONE_OF):
        instance = seeded_instance(seed)
        if instance.has_several_parts and plan_count(instance) <= PLANS_MOST:
            yield seed, instance


def found(instance: Instance) -> Optimum:
    """What the program says without a cutoff."""
    return optimise(
        instance,
        moments=moments_of(instance),
        cutoff_seconds=None,
        within=Within(SECONDS),
    )


def test_the_optimum_is_that_of_all_plans() -> None:
    statuses = []
    for seed, instance in small_ones():
        best, answer = least(instance), found(instance)
        statuses.append(answer.status)
        if np.isfinite(best):
            assert answer.status is Status.OPTIMAL, seed
            assert answer.step_seconds is not None
            assert abs(answer.step_seconds - best) <= 1e-7 * best, seed
        else:
            assert answer.status is Status.INFEASIBLE, seed
    assert statuses.count(Status.OPTIMAL) > of_drawn(20, one_of=ONE_OF)
    assert statuses.count(Status.INFEASIBLE) > of_drawn(5, one_of=ONE_OF)


def a_kind(*options: tuple[float, float, float], count: int, pinned: int | None = None) -> Kind:
    """Layers with (pace, static bytes, bytes kept of a micro-batch) by choice, on two ranks."""
    pace, static, kept = (np.array([column] * 2) for column in zip(*options, strict=True))
    none = np.zeros_like(pace)
    return Kind(
        count=count,
        pinned_stage=pinned,
        pace=pace,
        fill=none,
        end=none,
        memory=static + ALIKE * kept,
        transient=none,
        host=none,
        kept=kept,
        choice=tuple(range(len(options))),
    )


def test_a_choice_that_keeps_less_stays_though_another_takes_less_while_stages_hold_alike() -> None:
    """The first block takes 7 bytes alike, and 5 + 4 = 9 where its stage holds four micro-batches.

    The faster choice takes 6 alike, but 3 x 4 = 12 then, of 10. With the slower, at 2 s, and a
    block of 1 s behind it, the first rank takes 3 s.
    """
    edge, nothing = (0.0, 0.0, 0.0), np.zeros(2)
    instance = Instance(
        repeat_count=1.0,
        stage_pace=nothing,
        stage_fill=nothing,
        stage_bytes=nothing,
        stage_end=nothing,
        capacity_bytes=nothing + 10.0,
        host_capacity_bytes=nothing,
        least_blocks=2,
        holders=(0, 1, 0, 1),
        kinds=(
            a_kind(edge, count=1, pinned=0),
            a_kind((2.0, 5.0, 1.0), (1.0, 0.0, 3.0), count=1),
            a_kind((1.0, 0.0, 0.0), count=3),
            a_kind(edge, count=1, pinned=1),
        ),
        chain=((1, 1), (2, 3)),
    )
    answer = found(instance)
    assert (answer.status, answer.step_seconds) == (Status.OPTIMAL, 3.0)
