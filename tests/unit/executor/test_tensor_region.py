"""Tokens that tensor-parallel ranks have otherwise inside of the experts than outside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("torch", reason="no package torch")

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Placement, Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from executor.apply.expert_parallel import TensorRegion
from executor.models.experts import LocalDispatch, RoutedExperts

EXPERTS, TOKENS, HIDDEN, WIDTH = 4, 8, 16, 8


@pytest.fixture
def two_ranks() -> Iterator[None]:
    """A process group of two ranks, of which the other only takes part by name."""
    distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield
    distributed.destroy_process_group()


def collectives(counted: Any) -> dict[str, int]:
    """Return how often each collective was called, by its plain name."""
    return {str(name).split(".")[-1]: count for name, count in counted.get_comm_counts().items()}


def exchanged(*, outside: Placement, inside: Placement) -> tuple[dict[str, int], dict[str, int]]:
    """Return the collectives forward, and backward."""
    experts = RoutedExperts(
        nn.Parameter(torch.ones(EXPERTS, 2, WIDTH, HIDDEN)),
        nn.Parameter(torch.ones(EXPERTS, HIDDEN, WIDTH)),
        activation=nn.functional.silu,
    )
    experts.dispatch = TensorRegion(
        inner=LocalDispatch(EXPERTS),
        mesh=init_device_mesh("cpu", (2,)),
        outside=outside,
        inside=inside,
    )
    tokens = torch.ones(TOKENS, HIDDEN, requires_grad=True)
    chosen = torch.arange(TOKENS).view(TOKENS, 1) % EXPERTS
    weights = torch.ones(TOKENS, 1, requires_grad=True)
    with CommDebugMode() as forward:  # type: ignore[no-untyped-call]
        output = experts(tokens, chosen, weights)
    with CommDebugMode() as backward:  # type: ignore[no-untyped-call]
        output.sum().backward()
    return collectives(forward), collectives(backward)


GATHER, SCATTER, SUM = "all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce"


@pytest.mark.usefixtures("two_ranks")
@pytest.mark.parametrize(
    ("outside", "inside", "forward", "backward"),
    [
        (Shard(0), Replicate(), {GATHER: 3, SCATTER: 1}, {GATHER: 1, SCATTER: 2}),
        (Replicate(), Replicate(), {SUM: 1}, {SUM: 2}),
        (Replicate(), Shard(0), {GATHER: 1}, {GATHER: 2}),
        (Shard(0), Shard(0), {}, {}),
    ],
)
def test_what_was_chosen_moves_beside_the_tokens_as_is_priced(
    outside: Placement, inside: Placement, forward: dict[str, int], backward: dict[str, int]
) -> None:
    """Tokens, numbers of experts and weights forward; gradients of tokens and weights backward."""
    assert exchanged(outside=outside, inside=inside) == (forward, backward)
