"""The list of guards: each stands where it says; `python -m tests.chaos.mutants` removes them."""

from __future__ import annotations

import pytest

from tests.chaos.guards import GUARDS, Guard
from tests.chaos.server import ROOT


@pytest.mark.parametrize("guard", GUARDS, ids=[guard.protects for guard in GUARDS])
def test_a_guard_can_be_taken_away_by_its_text_and_something_is_to_notice(guard: Guard) -> None:
    source = (ROOT / guard.path).read_text()
    compile(guard.removed_from(source), guard.path, "exec")
    assert bool(guard.test) != bool(guard.fault)
    path, _, name = guard.test.partition("::")
    assert not path or f"def {name}(" in (ROOT / path).read_text()
