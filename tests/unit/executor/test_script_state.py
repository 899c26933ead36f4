"""What a script keeps takes over what was saved for it, and nothing else in its place."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="no package torch")

import torch

from executor.errors import CheckpointError
from executor.script_state import ScriptState


class Count:
    """A number that is kept."""

    def __init__(self) -> None:
        self.value = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the number."""
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a number."""
        self.value = state["value"]


def test_a_checkpoint_without_a_state_of_what_is_kept_is_refused() -> None:
    """As one of an earlier release is, which had no states."""
    script = ScriptState(torch.device("cpu"))
    script.keep({"count": Count()})
    with pytest.raises(CheckpointError, match="holds no state of count"):
        script.restore({"kept": {}, "generators": []})


def test_what_is_kept_after_a_load_takes_over_what_was_read() -> None:
    script, known, new = ScriptState(torch.device("cpu")), Count(), Count()
    script.restore({"kept": {"known": {"value": 7}}, "generators": []})
    script.keep({"known": known, "new": new})
    assert (known.value, new.value) == (7, 0)
