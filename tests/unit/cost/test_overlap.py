"""Overlap: what compute hides, and what hiding costs."""

from __future__ import annotations

import numpy as np
import pytest

from planner.cost.collectives import exposed_seconds
from planner.hardware_profiles import OverlapProfile

HALF = OverlapProfile(hidden_ratio=0.5, contention_ratio=0.1)


def test_communication_within_the_window_costs_contention_only() -> None:
    """2 s hide under half of 6 s, and slow it by a tenth of 2 s."""
    assert exposed_seconds(np.array(2.0), np.array(6.0), HALF) == pytest.approx(0.2)


def test_communication_beyond_the_window_is_exposed() -> None:
    """Half of 6 s hides 3 of 5 s: 2 s stay, and a tenth of 3 s is contention."""
    assert exposed_seconds(np.array(5.0), np.array(6.0), HALF) == pytest.approx(2.3)


def test_without_a_window_all_is_exposed() -> None:
    assert exposed_seconds(np.array(5.0), np.array(0.0), HALF) == pytest.approx(5.0)


def test_no_communication_costs_nothing() -> None:
    assert exposed_seconds(np.array(0.0), np.array(6.0), HALF) == 0.0
