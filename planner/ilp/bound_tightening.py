"""Reduction: what no plan below a cutoff can have, so that the program need not say it.

With a cutoff Z and the bounds S', U' and so on of `planner.ilp.lagrangian_bound`:

R1. rho T + U <= Z - S' and rho T <= Z - S' - U': limits of each rank's omega and pace, beside that
    of its memory. Each limit leaves windows to what ranks hold. Within them S' may be larger, and
    the limits closer: this is repeated while it helps.
R2. A rank surely holds some layers. With those at their least price, n layers of choice s cost at
    least n (price_s - least price) more: the most n that the limits leave, at any grid point,
    bounds n[r,k,s]; often by 0.
R3. On one rank the micro-batches in flight are known, and more choices are dominated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from planner.cost.configuration import Floats, Integers
from planner.ilp.instance import Instance, Kind
from planner.ilp.lagrangian_bound import (
    ObjectiveBounds,
    PricedChain,
    Windows,
    both,
    both_chain,
    everything,
    fill_chain,
    fit_chain,
    levels_of,
    objective_bounds,
    pace_chain,
    windows_at,
)
from planner.ilp.settings import (
    CONFIGURATIONS_KEPT,
    FEW_KEPT,
    ROUNDING,
    TIGHTENING_PROGRESS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """`most[k]` bounds the layers of kind k by [stages, choices]; `windows` what ranks hold."""

    most: tuple[Integers, ...]
    windows: Windows
    bounds: ObjectiveBounds


_Limit = tuple[PricedChain, float]
"""No rank of a plan below the cutoff exceeds the number in the chain's prices."""


@lru_cache(maxsize=CONFIGURATIONS_KEPT)
def reduction(
    instance: Instance,
    *,
    cutoff_seconds: float,
    bounds: ObjectiveBounds | None = None,
    cuts: tuple[int, ...] | None = None,
) -> Reduction | None:
    """Return what plans of at most `cutoff_seconds` have, None if it is proven there are none.

    An infinite cutoff leaves all plans that fit. `bounds` are the instance's where they are known.
    Choices that others beat are left out. With `cuts` the chain is cut there.
    """
    known = bounds or objective_bounds(instance)
    if known is None or known.step_seconds() > cutoff_seconds * (1.0 + ROUNDING):
        return None
    windows = everything(instance) if cuts is None else windows_at(instance, cuts)
    while True:
        limits = _limits(instance, known, cutoff_seconds)
        narrowed = _narrowed(instance, windows, limits)
        if narrowed is None:
            return None
        windows = narrowed
        fill_sum = levels_of(fill_chain(instance)).least_sum(windows)
        if fill_sum <= known.fill_sum * (1.0 + TIGHTENING_PROGRESS):
            break
        known = replace(known, fill_sum=fill_sum)
        if known.step_seconds() > cutoff_seconds * (1.0 + ROUNDING):
            return None
    most = tuple(_most(instance, k, windows, limits) for k in range(len(instance.kinds)))
    if not _complete(instance, most):
        return None
    return Reduction(most=most, windows=windows, bounds=known)


def _complete(instance: Instance, most: tuple[Integers, ...]) -> bool:
    """Return whether every kind can be placed and every rank can hold what it must."""
    placed = all(
        int(bound.sum()) >= kind.count for kind, bound in zip(instance.kinds, most, strict=True)
    )
    held = np.sum([most[k].sum(axis=1) for k in instance.free_kinds], axis=0)
    return placed and bool((held >= instance.least_blocks).all())


def _narrowed(instance: Instance, windows: Windows, limits: Sequence[_Limit]) -> Windows | None:
    """Return what the limits leave of the windows, None where that is nothing."""
    left: Windows | None = windows
    for chain, most in limits:
        found = levels_of(chain).windows(most)
        left = None if found is None or left is None else both(left, found, instance)
    return left


def _limits(instance: Instance, bounds: ObjectiveBounds, cutoff_seconds: float) -> list[_Limit]:
    """Return R1: each chain with the most that a rank may reach in it."""
    both_most = cutoff_seconds - bounds.fill_sum
    found = [(fit_chain(instance), 0.0), (both_chain(instance), both_most)]
    if instance.repeat_count > 0.0:
        pace_most = (both_most - bounds.largest_end) / instance.repeat_count
        found.append((pace_chain(instance), pace_most))
    return [(chain, most + ROUNDING * abs(most)) for chain, most in found if np.isfinite(most)]


def _most(
    instance: Instance,
    k: int,
    windows: Windows,
    limits: Sequence[_Limit],
) -> Integers:
    """Return the most layers of kind k that each rank can hold under each choice (R1 to R3)."""
    kind = instance.kinds[k]
    if kind.pinned_stage is None:
        room = windows.room[:, k]
    else:
        room = np.where(np.arange(instance.stage_count) == kind.pinned_stage, 1, 0)
    most = np.repeat(room[:, None].astype(np.float64), len(kind.choice), axis=1)
    for limit in limits:
        most = np.minimum(most, _affordable(_spare(*limit, windows), limit[0].prices[k]))
    return np.where(_undominated(kind), most, 0.0).astype(np.int64)


def _spare(chain: PricedChain, most: float, windows: Windows) -> Floats:
    """Return what a limit leaves beside the layers that a rank surely holds, [stages, grid]."""
    sure = windows.sure[:, list(chain.instance.free_kinds)].astype(np.float64)
    held = np.einsum("rk,krg->rg", sure, chain.least_prices())
    rounding = ROUNDING * (abs(most) + np.abs(chain.offset) + held)
    return np.asarray(most - chain.offset - held + rounding)


def _affordable(spare: Floats, price: Floats) -> Floats:
    """Return how many layers of each choice the spare [stages, grid] pays, [stages, choices].

    What a layer costs beyond the least of its kind is paid from the spare, at every grid point.
    """
    extra = price - price.min(axis=2, keepdims=True)
    paid = np.full_like(extra, np.inf)
    np.divide(np.maximum(spare, 0.0)[:, :, None], extra, out=paid, where=extra > 0.0)
    return np.asarray(np.floor(paid.min(axis=1) * (1.0 + ROUNDING) + ROUNDING))


@lru_cache(maxsize=FEW_KEPT)
def _undominated(kind: Kind) -> Floats:
    """Return R3 as 1 and 0, [stages, choices]."""
    columns = np.stack([kind.pace, kind.fill, kind.end, kind.memory, kind.transient, kind.host])
    no_worse = np.all(columns[:, :, :, None] <= columns[:, :, None, :], axis=0)
    equal = no_worse & np.swapaxes(no_worse, 1, 2)
    place = np.arange(columns.shape[2])
    beaten = no_worse & (~equal | (place[:, None] < place[None, :]))
    return np.asarray(~beaten.any(axis=1), dtype=np.float64)
