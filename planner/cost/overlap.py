"""Overlap: what of a communication is not hidden by the compute beside it.

    exposed = max(0, t - h w) + c min(t, h w)

with t the communication, w the compute window, h the share of it that can hide, and c the
slowdown of the compute that shares the device while hiding.

Source: contention as Galvatron measured it, arXiv:2211.13878 section 4.
"""

from __future__ import annotations

import numpy as np

from planner.cost.configuration import Floats
from planner.hardware_profiles import OverlapProfile


def exposed_seconds(communication: Floats, window: Floats, overlap: OverlapProfile) -> Floats:
    """Return the seconds that `communication` adds to a compute window."""
    hidden = np.minimum(communication, overlap.hidden_ratio * window)
    return communication - hidden + overlap.contention_ratio * hidden
