"""Least memory: the lowest cap on every device's peak under which a request still has a plan.

Whether anything fits under a cap is a search that stops at its first plan, and bisecting on the cap
closes in on the least peak. Whatever cap was proven to leave no plan is a lower bound of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.ilp.problem import Found, NotFound
from planner.requests.inquiry import Inquiry, solution
from planner.requests.resolution import Request
from planner.requests.variation import with_peak_cap

PEAK_TOLERANCE = 1e-3
_OPEN_TOLERANCE = 1e-2
_SHARE_RATIO = 0.15
_PROOF_SHARE_RATIO = 0.5
_RESERVED_RATIO = 0.2
_LAST_REACH = 5e-10
_LAST_SEARCHES = 6
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Leanest:
    """The fastest plan found among those of least peak; no plan's peak is under `bound_bytes`."""

    found: Found
    bound_bytes: float


@dataclass(slots=True, kw_only=True)
class _Descent:
    """The leanest plan so far, its peak, and the largest cap that was proven to leave none."""

    request: Request
    inquiry: Inquiry
    found: Found
    peak_bytes: float
    reserved_seconds: float
    proven_bytes: float = 0.0

    @property
    def is_late(self) -> bool:
        """Return whether only the time for the fastest of the leanest plans is left."""
        return self.inquiry.seconds_left <= self.reserved_seconds

    def try_cap(self, cap_bytes: float, *, share_ratio: float = _SHARE_RATIO) -> bool | None:
        """Return whether a plan keeps the cap, None where that was not settled in time."""
        answer = self.inquiry.search(
            with_peak_cap(self.request, cap_bytes), is_any_welcome=True, share_ratio=share_ratio
        )
        if isinstance(answer, Found):
            self.found, self.peak_bytes = answer, solution(self.request, answer).peak_memory_bytes
            return True
        if not answer.proven:
            return None
        self.proven_bytes = max(self.proven_bytes, cap_bytes)
        return False


def leanest(request: Request, *, inquiry: Inquiry) -> Leanest | NotFound:
    """Return the fastest plan of least peak memory, to `PEAK_TOLERANCE`, or what is missing.

    Where the time runs out, the leanest plan found, with the bound that was proven until then.

    Raises:
        SolverError: if the solver fails.
        VerificationError: if a plan does not survive its own recomputation.
    """
    reserved = inquiry.seconds_left * _RESERVED_RATIO
    first = inquiry.search(request, is_any_welcome=True)
    if isinstance(first, NotFound):
        return first
    peak = solution(request, first).peak_memory_bytes
    descent = _Descent(
        request=request, inquiry=inquiry, found=first, peak_bytes=peak, reserved_seconds=reserved
    )
    least_open = _bisect(descent)
    if least_open is None:
        _descend(descent)
    else:
        _raise_bound(descent, least_open)
    return Leanest(found=_fastest(descent), bound_bytes=descent.proven_bytes)


def _bisect(descent: _Descent) -> float | None:
    """Halve the interval between caps with and without a plan until it is within tolerance.

    Return the least cap of which neither was settled in time, None if there is none. From there on
    only better plans are looked for, and less closely.
    """
    low, tolerance = 0.0, PEAK_TOLERANCE
    least_open = None
    while descent.peak_bytes - low > tolerance * descent.peak_bytes and not descent.is_late:
        middle = (low + descent.peak_bytes) / 2.0
        fits = descent.try_cap(middle)
        if fits is None and least_open is None:
            least_open, tolerance = middle, _OPEN_TOLERANCE
            _raise_bound(descent, middle, most=1)
        if not fits:
            low = middle
    return least_open


def _descend(descent: _Descent) -> None:
    """Ask for less than the leanest plan takes until there is none: peaks are few."""
    for _ in range(_LAST_SEARCHES):
        cap = descent.peak_bytes * (1.0 - _LAST_REACH)
        if descent.is_late or not descent.try_cap(cap):
            return


def _raise_bound(descent: _Descent, least_open: float, *, most: int = _LAST_SEARCHES) -> None:
    """Prove larger caps to leave no plan, by halving the interval up to the least open one."""
    high = least_open
    for _ in range(most):
        if descent.is_late:
            return
        middle = (descent.proven_bytes + high) / 2.0
        if descent.try_cap(middle, share_ratio=_PROOF_SHARE_RATIO) is not False:
            high = middle


def _fastest(descent: _Descent) -> Found:
    """Return the fastest plan that needs no more memory than the leanest that was found.

    Its certificate's bound holds among such plans.
    """
    known, request = descent.found, descent.request
    cap = descent.peak_bytes * (1.0 + _ROUNDING)
    answer = descent.inquiry.search(with_peak_cap(request, cap), share_ratio=1.0)
    if isinstance(answer, Found) and answer.step_seconds <= known.step_seconds:
        return answer
    bound = min(
        answer.certificate.lower_bound_seconds
        if isinstance(answer, Found)
        else answer.lower_bound_seconds,
        known.step_seconds,
    )
    gap = 1.0 - bound / known.step_seconds
    certificate = known.certificate.model_copy(
        update={"status": "feasible", "lower_bound_seconds": bound, "gap_ratio": gap}
    )
    return replace(known, certificate=certificate)
