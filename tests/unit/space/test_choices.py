"""Choices of blocks and edges under a job's limits."""

from __future__ import annotations

from planner.schema.job import Limits
from planner.schema.strategy import ActivationCheckpointing, Offload
from planner.space.choices import block_choices, edge_choices


def test_sixty_choices_of_a_block() -> None:
    """Three checkpointings, by 4 sets of offload under ZeRO 0, 1 and 2 and by 8 under 3."""
    assert len(block_choices(Limits())) == 3 * (3 * 4 + 8)


def test_ten_choices_of_an_edge() -> None:
    """No activations: 2 sets of offload under ZeRO 0, 1 and 2, and 4 under 3."""
    assert len(edge_choices(Limits())) == 3 * 2 + 4


def test_choices_differ() -> None:
    assert len(set(block_choices(Limits()))) == len(block_choices(Limits()))


def test_parameters_are_offloaded_only_when_sharded() -> None:
    stages = {c.zero_stage for c in block_choices(Limits()) if Offload.PARAMETERS in c.offload}
    assert stages == {3}


def test_edges_keep_no_activations() -> None:
    choices = edge_choices(Limits())
    assert all(c.activation_checkpointing is ActivationCheckpointing.NONE for c in choices)
    assert not any(Offload.ACTIVATIONS in c.offload for c in choices)


def test_limits_leave_what_they_allow() -> None:
    limits = Limits(zero_stages=(3, 1), activation_checkpointing=("full",), offload=("optimizer",))
    assert [(c.zero_stage, c.offload) for c in block_choices(limits)] == [
        (1, ()),
        (1, (Offload.OPTIMIZER,)),
        (3, ()),
        (3, (Offload.OPTIMIZER,)),
    ]
