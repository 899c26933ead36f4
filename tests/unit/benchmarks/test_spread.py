"""How far layouts differ: which degrees of freedom and scale are likeliest."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.spread import likeliest, log_likelihood


def test_the_density_of_one_difference_by_hand() -> None:
    """F(1, 1) at 1 is 1 / (pi sqrt(1) (1 + 1)) = 0.159155; of half the scale twice that at 2."""
    assert log_likelihood([(1, 1.0)], degrees=1.0, scale=1.0) == pytest.approx(np.log(0.159155))
    halved = log_likelihood([(1, 1.0)], degrees=1.0, scale=0.5)
    assert halved == pytest.approx(np.log(2.0 / (np.pi * np.sqrt(2.0) * 3.0)))


def test_what_grids_were_drawn_from_is_found_again() -> None:
    """400 grids of eleven layouts, of 4 degrees of freedom and a scale of 0.3."""
    random = np.random.default_rng(7)
    drawn = [(10, 0.3 * float(random.f(10.0, 4.0))) for _ in range(400)]
    degrees, scale = likeliest(drawn)
    assert degrees == pytest.approx(4.0, rel=0.2)
    assert scale == pytest.approx(0.3, rel=0.1)
