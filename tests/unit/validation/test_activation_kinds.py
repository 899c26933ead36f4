"""How many operations a row's activation is follows from its name, or from the program."""

from __future__ import annotations

import pytest

from planner.schema.model import Activation
from planner.validation.case import case_of
from tests.measured_rows import KORTHIKANTI, a_run

MINGPT = {"framework": "Lightning Lite FSDP (PyTorch 1.13)", "source": "minGPT on Lightning Lite"}


@pytest.mark.parametrize(
    ("fields", "kind", "dropout"),
    [
        ({}, Activation.KERNEL, True),  # Megatron-LM's
        ({"activation": "gelu_new"}, Activation.GELU_STEPS, True),
        (MINGPT, Activation.GELU_WIDE_STEPS, True),
        ({**MINGPT, "source": "another model"}, Activation.KERNEL, False),
    ],
)
def test_the_row_or_its_program_says_how_gelu_is_made(
    fields: dict[str, str], kind: Activation, dropout: bool
) -> None:
    case = case_of(a_run(KORTHIKANTI, tp=1, pp=1, dp=8, num_gpus=8, gbs=8, mbs=1, **fields))
    (run,) = case.graph.runs
    assert run.block.feed_forward.activation is kind
    assert case.job.dropout is dropout
