"""Easing: cuts of a chain of several kinds at which the tightest rank is less tight.

At the start cuts balance the least bytes of layers, or fill ranks up from one end of the chain. A
move shifts one cut by some blocks, which changes what two ranks hold. The best of all moves is made
until every rank's load may fit, or none helps. It proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.climbing import cut_moves, held_at
from planner.ilp.effort import Effort
from planner.ilp.heuristic import balanced_cuts, cuts_under
from planner.ilp.instance import Instance
from planner.ilp.tightness import FULL, Room

_RATIOS = (0.0, 0.25, 1.0, 4.0)
_SHIFTS = (-16, -4, -1, 1, 4, 16)
_MOVES_MOST = 60
_STEEPNESS = 24
_TIGHTEST = 1e6
_UNITS_A_MOVE = 20.0


def eased_cuts(
    instance: Instance, rooms: Sequence[Room], *, effort: Effort
) -> Iterator[tuple[int, ...]]:
    """Yield cuts at which no rank's tightness is above 1, as long as there is effort left."""
    for cuts in _lean_cuts(instance):
        eased = _eased(instance, rooms, np.array(cuts), effort)
        if eased is not None:
            yield tuple(eased.tolist())


def cut_bytes(instance: Instance, cuts: Sequence[int] | Integers) -> Floats:
    """Return the bytes that the cuts add to every rank beyond their least, [stages]."""
    held = np.zeros(instance.stage_count)
    extras = instance.extras
    if extras is not None:
        inner = np.arange(len(cuts) - 2)
        classes = instance.block_classes[np.asarray(cuts)[1:-1] - 1]
        holders = np.array(instance.holders)
        np.add.at(held, holders[:-1], extras.first_bytes[inner, classes])
        np.add.at(held, holders[1:], extras.second_bytes[inner, classes])
    return held


def _lean_cuts(instance: Instance) -> Iterator[tuple[int, ...]]:
    """Yield cuts of little memory by the bytes of layers at some prices of host bytes."""
    seen = set()
    for ratio in _RATIOS:
        share = _shares(instance, ratio)
        for cuts in (
            balanced_cuts(instance, share, with_own=False),
            _filled_up(instance, share),
            _filled_up_from_the_end(instance, share),
        ):
            if cuts is not None and cuts not in seen:
                seen.add(cuts)
                yield cuts


def _shares(instance: Instance, ratio: float) -> Floats:
    """Return the least share of a rank's room that a block takes, [stages, blocks].

    With a ratio of 1 all of the host's memory is worth as much as all of the device's.
    """
    room, host = instance.capacity_bytes - instance.stage_bytes, instance.host_capacity_bytes
    price = ratio * room / np.maximum(host, 1.0)
    limit = np.maximum(room + price * host, 1.0)
    share = np.zeros((instance.stage_count, len(instance.kinds)))
    for k in instance.free_kinds:
        kind = instance.kinds[k]
        share[:, k] = (kind.memory + price[:, None] * kind.host).min(axis=1) / limit
    return np.asarray(share[:, instance.block_kinds])


def _filled_up(instance: Instance, share: Floats) -> tuple[int, ...] | None:
    """Return cuts at which the first ranks take all that they have room for."""
    sums = np.concatenate([np.zeros((len(share), 1)), np.cumsum(share, axis=1)], axis=1)
    room = [1.0 / instance.least_blocks] * instance.stage_count
    return cuts_under(instance, sums.tolist(), room)


def _filled_up_from_the_end(instance: Instance, share: Floats) -> tuple[int, ...] | None:
    """Return cuts at which the last ranks take all that they have room for."""
    backwards = replace(instance, holders=instance.holders[::-1], chain=instance.chain[::-1])
    cuts = _filled_up(backwards, share[:, ::-1])
    return None if cuts is None else tuple(instance.block_count - cut for cut in cuts[::-1])


def _eased(
    instance: Instance, rooms: Sequence[Room], cuts: Integers, effort: Effort
) -> Integers | None:
    """Return the cuts at the end of the way, None where a rank is still too tight."""
    ranks = np.arange(instance.stage_count)
    tight = _tightness(rooms, ranks, held_at(instance, cuts), cut_bytes(instance, cuts))
    for _ in range(_MOVES_MOST):
        if float(tight.max()) <= FULL:
            return cuts
        effort.spend(_UNITS_A_MOVE * 2 * len(_SHIFTS) * len(instance.holders))
        moved = None if effort.is_over else _best_move(instance, rooms, cuts, tight)
        if moved is None:
            return None
        cuts, tight = moved
    return None


def _best_move(
    instance: Instance, rooms: Sequence[Room], cuts: Integers, tight: Floats
) -> tuple[Integers, Floats] | None:
    """Return the cuts after the move that eases most with their tightness, None if none does."""
    moves = cut_moves(instance, cuts, _SHIFTS)
    if not moves:
        return None
    before = held_at(instance, cuts)
    after = [held_at(instance, move) for move in moves]
    changed = [np.flatnonzero((held != before).any(axis=1)) for held in after]
    fresh = _tightness(
        rooms,
        np.concatenate(changed),
        np.concatenate([held[own] for held, own in zip(after, changed, strict=True)]),
        np.concatenate(
            [cut_bytes(instance, move)[own] for move, own in zip(moves, changed, strict=True)]
        ),
    )
    trials = np.repeat(tight[None], len(moves), axis=0)
    rows = np.repeat(np.arange(len(moves)), [len(own) for own in changed])
    trials[rows, np.concatenate(changed)] = fresh
    scores = _scores(np.concatenate([tight[None], trials]))
    best = int(scores[1:].argmin())
    return (moves[best], trials[best]) if scores[1 + best] < scores[0] else None


def _scores(tight: Floats) -> Floats:
    """Return a norm of the ranks' tightness, [plans, stages]: a less tight rank counts as well."""
    capped = np.minimum(tight, _TIGHTEST)
    most = max(float(capped.max()), 1e-300)
    scores: Floats = ((capped / most) ** _STEEPNESS).sum(axis=1)
    return scores


def _tightness(
    rooms: Sequence[Room], ranks: Integers, held: Integers, further_bytes: Floats
) -> Floats:
    """Return the tightness of loads on ranks, [rows]; ranks of one room are looked at together."""
    found = np.empty(len(ranks))
    groups: dict[int, list[int]] = {}
    for row, rank in enumerate(ranks.tolist()):
        groups.setdefault(id(rooms[rank]), []).append(row)
    for rows in groups.values():
        room = rooms[int(ranks[rows[0]])]
        found[rows] = room.tightness(held[rows], further_bytes[rows])
    return found
