"""Parity: what of a run must agree with the unsharded one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from tests.distributed.rounding import EXACT, SUMMED_LOSS

LOSS_OF_16_BITS = SUMMED_LOSS
CHECKPOINTING = ("none", "selective", "full")
Answer = dict[str, Any]


def cases(strategies: Mapping[str, Any], *, always: set[str]) -> list[Any]:
    """Parameters of a test, by name; those that are not `always` run belong to the full matrix."""
    assert always <= strategies.keys()
    return [
        pytest.param(fields, id=name, marks=() if name in always else pytest.mark.parity_full)
        for name, fields in strategies.items()
    ]


def some_of(rows: Iterable[tuple[Any, ...]], *, always: set[tuple[Any, ...]]) -> list[Any]:
    """Parameters of a test, several each; those not `always` run belong to the full matrix."""
    found = list(rows)
    assert always <= set(found)
    return [
        pytest.param(*row, marks=() if row in always else pytest.mark.parity_full) for row in found
    ]


def cells(*, always: Mapping[Any, Sequence[str]]) -> list[Any]:
    """Parameters (row, checkpointing) of a test: of each row those that are `always` run.

    All others belong to the full matrix.
    """
    return [
        pytest.param(row, column, marks=() if column in run else pytest.mark.parity_full)
        for row, run in always.items()
        for column in CHECKPOINTING
    ]


def check_parity(answer: Answer) -> None:
    """Fail unless a run comes as close to the unsharded one in fp64 as rounding lets it."""
    bars = answer["bars"]
    assert answer["differences"] == []
    assert answer["losses"] == pytest.approx(answer["reference_losses"], rel=bars["loss"])
    assert answer["losses"][-1] != answer["losses"][0]
    assert answer["gradient_error"] <= bars["gradient"]
    assert answer["parameter_error"] <= bars["parameter"]


def check_states(answer: Answer, *, loss: float = EXACT, parameter: float = EXACT) -> None:
    """Fail unless a run equals the unsharded one, and keeps no state in what it computes in."""
    assert answer["differences"] == []
    assert answer["formats"] == ["torch.float64"]
    assert answer["losses"] == pytest.approx(answer["reference_losses"], rel=loss)
    assert answer["losses"][-1] != answer["losses"][0]
    assert answer["parameter_error"] <= parameter


def check_clipped(answer: Answer, *, loss: float = EXACT) -> None:
    """Fail unless a run equals the unsharded one, and clipping mattered."""
    check_states(answer, loss=loss)
    assert answer["norms"] == pytest.approx(answer["reference_norms"], rel=EXACT)
    assert answer["norms"][0] > answer["largest_norm"]
