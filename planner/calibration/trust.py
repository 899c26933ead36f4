"""Trust: runs that lie far from what all others say have more of their own than is stated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.cost.configuration import Floats
from planner.cost.learnt import Learnt

_TRUSTED_DEVIATIONS = 2.5
_ROUNDS = 5


def trusted_deviations(learnt_with: Callable[[Floats], Learnt], least: Floats) -> Floats:
    """Return the own deviations of runs, [runs], at least `least`.

    One that lies farther than 2.5 standard deviations from what all others say is taken to have as
    much of its own as makes it 2.5 of them.
    """
    own = least
    for _ in range(_ROUNDS if len(least) > 1 else 0):
        off, variances = learnt_with(own).left_out()
        wanted = (off / _TRUSTED_DEVIATIONS) ** 2 - (variances - own**2)
        own = np.sqrt(np.maximum(least**2, wanted))
    return own
