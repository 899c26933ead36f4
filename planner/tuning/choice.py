"""Choice: which of some plans to try next.

With T the step of a plan, log-normal by its predicted interval, b the least measured step, and P
the chance that it fits, the plan of the largest expected saving is tried:

    P E[(b - T)+] = P (b Phi(a) - exp(m + v^2 / 2) Phi(a - v)),   a = (log b - m) / v

with m and v the mean and the deviation of log T. Before anything is measured it is the plan that is
predicted to be the fastest. Plans without the chance of fitting that is asked for are passed over,
and so are those whose p10 is no less than b.

Source: Jones, Schonlau and Welch 1998, doi:10.1023/A:1008306431147, equation 15.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from planner.cost.intervals import P90_DEVIATIONS
from planner.schema.plan import Interval

_NORMAL = NormalDist()
_ROUNDING = 1e-6  # so that a plan at the very limit of memory has the chance that it was found by


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """What is known of a plan that has not been tried: its step, and its chance of fitting."""

    step_seconds: Interval
    fits_probability: float

    def could_beat(self, best_seconds: float | None) -> bool:
        """Return whether its optimistic end is below the least measured step."""
        return best_seconds is None or self.step_seconds.p10 < best_seconds

    def expected_saving(self, best_seconds: float) -> float:
        """Return P E[(b - T)+] in seconds a step."""
        mean = math.log(self.step_seconds.p50)
        deviation = math.log(self.step_seconds.p50 / self.step_seconds.p10) / P90_DEVIATIONS
        above = (math.log(best_seconds) - mean) / deviation
        expected = math.exp(mean + 0.5 * deviation**2)
        saved = best_seconds * _NORMAL.cdf(above) - expected * _NORMAL.cdf(above - deviation)
        return self.fits_probability * max(saved, 0.0)


def ranked(
    prospects: Sequence[Prospect], *, best_seconds: float | None, likely: float
) -> tuple[int, ...]:
    """Return the places of those worth trying, the next one first.

    Until something was measured the likeliest to fit is tried where none has the chance.
    """
    places = range(len(prospects))
    hopeful = [i for i in places if prospects[i].could_beat(best_seconds)]
    fitting = [i for i in hopeful if prospects[i].fits_probability >= likely - _ROUNDING]
    if best_seconds is not None:
        savings = {i: prospects[i].expected_saving(best_seconds) for i in fitting}
        return tuple(sorted(fitting, key=lambda i: (-savings[i], prospects[i].step_seconds.p50)))
    if fitting:
        return tuple(sorted(fitting, key=lambda i: prospects[i].step_seconds.p50))
    return tuple(sorted(places, key=lambda i: -prospects[i].fits_probability))
