"""Turns of a configuration: what was too much to enumerate is not enumerated again as far."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from planner.ilp import solving
from planner.ilp.search import search
from tests.small_jobs import small_jobs


def test_cutoffs_about_as_far_as_one_that_was_too_far_are_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Above the first bound, which says how many patterns there are."""
    asked: dict[int, list[tuple[float, float]]] = {}
    kept = []
    too_far = solving._is_as_far
    passed_over = []

    def enumerated(instance: Any, *, cutoff_seconds: float, bounds: Any, **_: Any) -> None:
        kept.append(instance)
        asked.setdefault(id(instance), []).append((cutoff_seconds, bounds.step_seconds()))

    def is_as_far(*given: Any) -> bool:
        passed_over.append(too_far(*given))
        return passed_over[-1]

    monkeypatch.setattr(solving, "enumerated", enumerated)
    monkeypatch.setattr(solving, "_is_as_far", is_as_far)
    monkeypatch.setattr(solving, "_branches_first", lambda *_: False)
    for _, job in small_jobs(range(400, 430), pipeline_schedules=("1f1b",)):
        search(job.problem)
    assert sum(passed_over) > 5
    for cutoffs in asked.values():
        for (before, _), (after, first) in pairwise(cutoffs):
            assert after - first <= 0.7 * (before - first)
