"""Choice: which of some plans to try next.

With T the step of a plan, log-normal by its predicted interval, b the least measured step, and P
the chance that it fits, the plan of the largest expected saving is tried:

    P E[(b - T)+] = P (b Phi(a) - exp(m + v^2 / 2) Phi(a - v)),   a = (log b - m) / v

with m and v the mean and the deviation of log T. Before anything is measured it is the plan that is
predicted to be the fastest. Plans without the chance of fitting that is asked for are passed over.
The second that is measured is of other degrees than the first. Once it is known how far layouts
differ (`planner.tuning.spread`), those whose p10 is no less than b are passed over.

Source: Jones, Schonlau and Welch 1998, doi:10.1023/A:1008306431147, equation 15.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from planner.cost.intervals import P90_DEVIATIONS
from planner.schema.plan import Interval
from planner.tuning.spread import KNOWN_BY

_NORMAL = NormalDist()
_ROUNDING = 1e-6  # so that a plan at the very limit of memory has the chance that it was found by


Degrees = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """What is known of a plan that has not been tried: its step, and its chance of fitting."""

    degrees: Degrees
    step_seconds: Interval
    fits_probability: float

    def expected_saving(self, best_seconds: float) -> float:
        """Return P E[(b - T)+] in seconds a step."""
        mean = math.log(self.step_seconds.p50)
        deviation = math.log(self.step_seconds.p50 / self.step_seconds.p10) / P90_DEVIATIONS
        above = (math.log(best_seconds) - mean) / deviation
        expected = math.exp(mean + 0.5 * deviation**2)
        saved = best_seconds * _NORMAL.cdf(above) - expected * _NORMAL.cdf(above - deviation)
        return self.fits_probability * max(saved, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The median step of a plan that was tried."""

    degrees: Degrees
    step_seconds: float


def cutoff_seconds(measured: Sequence[Measured]) -> float | None:
    """Return the step that a plan has to be able to beat, `None` until layouts' spread is known."""
    return min(one.step_seconds for one in measured) if len(measured) >= KNOWN_BY else None


def ranked(
    prospects: Sequence[Prospect], *, measured: Sequence[Measured], likely: float
) -> tuple[int, ...]:
    """Return the places of those worth trying, the next one first.

    Until something was measured the likeliest to fit is tried where none has the chance.
    """
    places, cutoff = range(len(prospects)), cutoff_seconds(measured)
    hopeful = [i for i in places if cutoff is None or prospects[i].step_seconds.p10 < cutoff]
    fitting = [i for i in hopeful if prospects[i].fits_probability >= likely - _ROUNDING]
    if not fitting and not measured:
        return tuple(sorted(places, key=lambda i: -prospects[i].fits_probability))
    fitting.sort(key=lambda i: prospects[i].step_seconds.p50)
    if measured:
        best_seconds = min(one.step_seconds for one in measured)
        fitting.sort(key=lambda i: -prospects[i].expected_saving(best_seconds))
    known = {one.degrees for one in measured}
    if cutoff is None and len(known) == 1:
        fitting.sort(key=lambda i: prospects[i].degrees in known)
    return tuple(fitting)
