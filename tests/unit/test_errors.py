"""Errors cross process borders whole."""

from __future__ import annotations

import pickle

import pytest

from planner.errors import DocumentError, IllegalStrategyError, InputError, UnsupportedModelError


@pytest.mark.parametrize(
    "kind", [InputError, DocumentError, UnsupportedModelError, IllegalStrategyError]
)
def test_an_input_error_survives_pickling_with_field_value_and_remedy(kind):
    error = kind("does not divide", field="degree", value=6, remedy="use 8")

    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  (made here)

    assert type(copy) is kind
    assert (copy.problem, copy.field, copy.value, copy.remedy) == (
        "does not divide",
        "degree",
        6,
        "use 8",
    )
    assert str(copy) == "degree: does not divide (got 6); use 8"
