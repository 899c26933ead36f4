"""Small instances of every sort, tight enough in memory that choices and cuts matter.

All numbers are whole, so that a plan fills the memory exactly or misses it by at least one. They
come from `pick(low, high)`, which is a Hypothesis draw or a seeded generator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from planner.ilp.instance import CutExtras, Instance, Kind

Pick = Callable[[int, int], int]
Numbers = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

MOST_BLOCKS = 7


def seeded_instance(seed: int) -> Instance:
    """The same instance for the same seed."""
    numbers = np.random.default_rng(seed)
    return small_instance(lambda low, high: int(numbers.integers(low, high + 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranks:
    """Ranks with their devices, and what the schedule makes of them."""

    holders: tuple[int, ...]
    devices: tuple[int, ...]
    in_flight: tuple[int, ...]
    repeat_count: float
    fill_share: float | None

    @property
    def count(self) -> int:
        return len(self.devices)


def small_instance(pick: Pick) -> Instance:
    """Up to 3 ranks, 6 virtual stages, 7 blocks of up to 3 kinds, 4 choices."""
    ranks = _ranks(pick)
    kind_count = pick(1, 3)
    chain = _chain(pick, kind_count, least=len(ranks.holders))
    counts = [sum(count for kind, count in chain if kind == k + 1) for k in range(kind_count)]
    edge_choices, block_choices = pick(1, 2), pick(1, 4)
    kinds = [_kind(pick, ranks, count=1, pinned=ranks.holders[0], choices=edge_choices)]
    kinds += [_kind(pick, ranks, count=c, pinned=None, choices=block_choices) for c in counts]
    kinds.append(_kind(pick, ranks, count=1, pinned=ranks.holders[-1], choices=edge_choices))
    pace = _each(pick, ranks, (0, 2))
    share = ranks.fill_share
    return Instance(
        repeat_count=ranks.repeat_count,
        stage_pace=pace,
        stage_fill=_each(pick, ranks, (0, 2)) if share is None else pace * share,
        stage_bytes=_each(pick, ranks, (0, 3)),
        stage_end=_by_device(pick, ranks, (0, 3)),
        capacity_bytes=_by_device(pick, ranks, (20, 130)),
        host_capacity_bytes=_by_device(pick, ranks, (0, 20)),
        least_blocks=len(ranks.holders) // ranks.count,
        holders=ranks.holders,
        kinds=tuple(kinds),
        chain=chain,
        extras=_extras(pick, ranks, len(kinds)) if pick(0, 2) == 0 else None,
    )


def _ranks(pick: Pick) -> _Ranks:
    """Ranks under one of: all fill, v = 2 looped, v = 2 there and back; one or two devices."""
    count, form, micro_batches = pick(1, 3), pick(0, 3), pick(1, 6)
    one_way = tuple(range(count))
    if form == 2:
        holders, repeats = one_way * 2, micro_batches - 0.5
    elif form == 3:
        holders, repeats = one_way + one_way[::-1], float(micro_batches)
    else:
        holders, repeats = one_way, micro_batches - 1.0
    flight = [micro_batches if form == 0 else min(micro_batches, count - r) for r in range(count)]
    return _Ranks(
        holders=holders,
        devices=tuple(0 if r < pick(1, count) else 1 for r in range(count)),
        in_flight=tuple(flight),
        repeat_count=repeats,
        fill_share=(1.0, 1.0, 0.5, None)[form],
    )


def _chain(pick: Pick, kind_count: int, *, least: int) -> tuple[tuple[int, int], ...]:
    """Every kind once at least, one after another or in turns, in `least` blocks or more."""
    total = pick(max(least, kind_count), MOST_BLOCKS)
    blocks = [1 + (i if i < kind_count else pick(0, kind_count - 1)) for i in range(total)]
    blocks = sorted(blocks) if pick(0, 1) else blocks
    chain: list[tuple[int, int]] = []
    for kind in blocks:
        last = chain.pop() if chain and chain[-1][0] == kind else (kind, 0)
        chain.append((kind, last[1] + 1))
    return tuple(chain)


def _kind(pick: Pick, ranks: _Ranks, *, count: int, pinned: int | None, choices: int) -> Kind:
    """Numbers of a kind by device, its memory by rank."""
    pace = _choices(pick, ranks, choices, range(1, 13))
    static = _choices(pick, ranks, choices, range(10))
    activation = _choices(pick, ranks, choices, range(4))
    flight = np.array(ranks.in_flight, dtype=np.float64)[:, None]
    share = ranks.fill_share
    return Kind(
        count=count,
        pinned_stage=pinned,
        pace=pace,
        fill=_choices(pick, ranks, choices, range(9)) if share is None else pace * share,
        end=_choices(pick, ranks, choices, range(10)),
        memory=static + flight * activation,
        transient=_choices(pick, ranks, choices, (0, 1, 3, 8)),
        host=_choices(pick, ranks, choices, (0, 0, 0, 2, 5)),
        choice=tuple(range(choices)),
        kept=activation,
    )


def _choices(pick: Pick, ranks: _Ranks, choices: int, values: Sequence[int]) -> Numbers:
    """Return a number for each device and choice, [ranks, choices]."""
    table = [
        [float(values[pick(0, len(values) - 1)]) for _ in range(choices)]
        for _ in range(max(ranks.devices) + 1)
    ]
    return np.array(table)[list(ranks.devices)]


def _by_device(pick: Pick, ranks: _Ranks, interval: tuple[int, int]) -> Numbers:
    table = [float(pick(*interval)) for _ in range(max(ranks.devices) + 1)]
    return np.array(table)[list(ranks.devices)]


def _each(pick: Pick, ranks: _Ranks, interval: tuple[int, int]) -> Numbers:
    return np.array([float(pick(*interval)) for _ in range(ranks.count)])


def _extras(pick: Pick, ranks: _Ranks, kind_count: int) -> CutExtras | None:
    """Extras by the block's kind; none between virtual stages of one rank."""
    apart = [a != b for a, b in zip(ranks.holders, ranks.holders[1:], strict=False)]
    if not apart:
        return None

    def column() -> Numbers:
        rows = [[float(pick(0, 3)) * crosses for _ in range(kind_count)] for crosses in apart]
        return np.array(rows)

    return CutExtras(pace=column(), fill=column(), first_bytes=column(), second_bytes=column())
