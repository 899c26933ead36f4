"""`meshwright demo`."""

from __future__ import annotations


def demo() -> None:
    """Plan, store, compare, run and measure, in one minute."""
