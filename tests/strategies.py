"""Hypothesis strategies of the project."""

from __future__ import annotations

from hypothesis import strategies as st

from planner.ilp.instance import Instance
from tests.small_chains import small_instance


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """An instance small enough to be tried in full, of every sort."""
    return small_instance(lambda low, high: draw(st.integers(low, high)))
