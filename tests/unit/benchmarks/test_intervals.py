"""Widths are chosen as quantiles: every source counts alike, and those that stand alone apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.intervals import Known, Widths, chosen, left_out, pair_of
from planner.cost.intervals import UNLEARNT_WIDTH
from planner.schema.job import Stack

A100, V100 = (pair_of(name, Stack.TORCH) for name in ("a100-sxm4-80gb", "v100-sxm2-32gb"))


def a_known(source: str, error: float, **changes: Any) -> Known:
    """Return a run on an A100."""
    fields = {"subsets": (), "shipped": 0.1, "adapted": False, "pair": A100}
    return Known(source=source, error=error, **{**fields, **changes})


def test_devices_of_one_chip_are_one_pair() -> None:
    assert pair_of("a800-sxm4-80gb", Stack.TORCH) == A100
    assert pair_of("a100-sxm4-80gb", Stack.MEGATRON) != A100


def test_a_source_of_many_runs_counts_as_one_of_few() -> None:
    """Five sources, of which one has a hundred runs: four are held by 0.04, the fifth by 0.5."""
    runs = [a_known(f"s{place}", 0.01 * place) for place in range(1, 5)]
    assert chosen([*runs, *[a_known("large", 0.5)] * 100]).plain == pytest.approx(0.04)


def test_adapters_and_what_stands_alone_have_widths_of_their_own() -> None:
    """Of 0.5 on a chip that no other source has, 0.1 is what the others are held by."""
    runs = [
        *(a_known(name, 0.1) for name in "ab"),
        *(a_known(name, 0.2, adapted=True) for name in "cd"),
        a_known("alone", 0.5, pair=V100),
    ]
    found = chosen(runs)
    assert (found.plain, found.adapted) == (0.1, 0.2)
    assert found.unlearnt == pytest.approx(np.sqrt(0.5**2 - 0.1**2), abs=0.005)


def test_a_source_is_held_by_what_the_others_chose() -> None:
    runs = [a_known("a", 0.1), a_known("b", 0.3), a_known("c", 0.2)]
    found = left_out([*runs, a_known("alone", 0.9, pair=V100)])
    assert found[:3] == pytest.approx([0.3, 0.2, 0.3])
    assert found[3] == pytest.approx(float(np.hypot(0.3, UNLEARNT_WIDTH)))


def test_widths_of_runs_add_what_no_other_source_ran() -> None:
    widths = Widths(plain=0.3, adapted=0.5, unlearnt=0.4)
    runs = [a_known("a", 0.0), a_known("a", 0.0, pair=V100)]
    assert widths.of(runs, {A100}) == pytest.approx([0.3, 0.5])
