"""Feasibility: whether changed requests have a plan, and the least or nearest change that does."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from planner.errors import InputError
from planner.requests.resolution import Request
from planner.requests.variation import with_cluster, with_limits
from planner.schema.cluster import Cluster

Feasible = Callable[[Request], bool]

_SECONDS_A_SEARCH = 5.0
_PARTS_OF_A_QUANTITY = 64  # finer than predictions of memory are right, and than it is sold
_ASKED_IN_A_ROW = 64  # 0.05 s each for a model of 70B: a few seconds


@dataclass(slots=True, kw_only=True)
class Checks:
    """Whether changed requests have a plan, asked until a deadline of `time.perf_counter`.

    `is_cut` says that an answer was left open because the time was over.
    """

    feasible: Feasible
    deadline: float
    is_cut: bool = False

    @property
    def seconds_left(self) -> float:
        """Return the seconds until the deadline, negative past it."""
        return self.deadline - time.perf_counter()

    def fits(self, changed: Request) -> bool:
        """Return whether a plan was found; past the deadline none is looked for."""
        seconds = min(self.seconds_left, _SECONDS_A_SEARCH)
        if seconds <= 0.0:
            self.is_cut = True
            return False
        own = changed.job.resolved.limits.solver_seconds
        found = self.feasible(with_limits(changed, solver_seconds=min(own, seconds)))
        self.is_cut = self.is_cut or not (found or self.seconds_left > 0.0)
        return found

    def fits_on(self, request: Request, cluster: Cluster) -> bool:
        """Return whether a plan was found on `cluster`; none is where its parts do not go together.

        A cluster's own levels may have no room for more nodes.
        """
        try:
            changed = with_cluster(request, cluster)
        except InputError:
            return False
        return self.fits(changed)


def doubled(fits: Callable[[int], bool], given: int, limit: int) -> tuple[int, int] | None:
    """Return the last value above `given` that did not fit and the first that did, by doubling."""
    low, high = given, min(max(given, 1) * 2, limit)
    while not fits(high):
        if high >= limit:
            return None
        low, high = high, min(high * 2, limit)
    return low, high


def halved(fits: Callable[[int], bool], low: int, high: int, *, parts: int | None = None) -> int:
    """Return the least value that fits of those above `low`, up to `high` which does.

    More is supposed never to hurt. The value may be too large by one of so many `parts` of it.
    """
    while high - low > max(1, 0 if parts is None else high // parts):
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def least(
    fits: Callable[[int], bool], given: int, limit: int, *, parts: int = _PARTS_OF_A_QUANTITY
) -> int | None:
    """Return a value above `given` that fits, the least to one of so many parts of it.

    More is supposed never to hurt.
    """
    bracket = doubled(fits, given, limit)
    return None if bracket is None else halved(fits, *bracket, parts=parts)


def most_below(
    fits: Callable[[int], bool], given: int, *, floor: int = 1, finest: int = 1
) -> int | None:
    """Return the largest number below `given` that is found to fit, None without one.

    It is halved, down to `floor`, until something fits. From there on multiples of ever smaller
    powers of two are tried, down to `finest`, each once: what fits is a product of degrees.
    """
    above, low = given, given // 2
    while low >= floor and not fits(low):
        above, low = low, low // 2
    if low < floor:
        return None
    step, refused = 1 << max(low.bit_length() - 1, 0), set[int]()
    while step >= finest:
        while (further := (low // step + 1) * step) < above and further not in refused:
            if fits(further):
                low = further
            else:
                refused.add(further)
        step //= 2
    return low


def fewest_above(fits: Callable[[int], bool], given: int, limit: int) -> int | None:
    """Return the least count above `given` that is found to fit, None without one.

    Of counts, more may hurt: what fits is a product of degrees. All of 2^a x 1, 3, 5 or 7 below one
    that was found by doubling are tried from the least on, and those between the last two by
    halving. Below what that finds any number is tried, until many in a row do not fit.
    """
    known = cache(fits)
    bracket = doubled(known, given, limit)
    if bracket is None:
        return None
    low, found = given, bracket[1]
    for count in _even_counts(given, found):
        if known(count):
            found = count
            break
        low = count
    found = halved(known, low, found)
    while (lower := _next_below(known, found, least=given + 1)) is not None:
        found = lower
    return found


def _even_counts(low: int, high: int) -> list[int]:
    """Return the numbers between two others, without both, of the form 2^a x 1, 3, 5 or 7."""
    powers = [2**power for power in range(high.bit_length())]
    found = {power * factor for power in powers for factor in (1, 3, 5, 7)}
    return sorted(number for number in found if low < number < high)


def most_count_below(fits: Callable[[int], bool], given: int) -> int | None:
    """Return the largest count below `given` that is found to fit, None without one.

    Any number is tried, until many do not fit; then those that `most_below` looks at.
    """
    known = cache(fits)
    return _next_below(known, given, least=1) or most_below(known, given)


def _next_below(fits: Callable[[int], bool], count: int, *, least: int) -> int | None:
    """Return the first of the next numbers below a count that fits, None where none of many do."""
    return next(filter(fits, range(count - 1, max(count - _ASKED_IN_A_ROW, least) - 1, -1)), None)
