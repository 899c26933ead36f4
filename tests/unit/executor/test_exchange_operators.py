"""The exchange of routed rows: operators that it runs beyond those of experts that are all here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="no package torch")

import torch
from torch import distributed, nn
from torch.utils._python_dispatch import TorchDispatchMode

from executor.apply.expert_parallel import Exchange
from executor.models.experts import Dispatch, LocalDispatch, RoutedExperts
from planner.cost.model_parallel import (
    EXCHANGE_BACKWARD_OPERATORS,
    EXCHANGE_FORWARD_OPERATORS,
)

EXPERTS, TOKENS, HIDDEN, WIDTH = 8, 64, 32, 16


@pytest.fixture
def lone_rank(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone."""
    store = f"file://{tmp_path / 'store'}"
    distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


class CountedOperators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operators that compute or move anything: no views and no empty tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run the operator, and count it."""
        aliases = [each.alias_info for each in operator._schema.arguments]
        is_view = any(alias is not None and not alias.is_write for alias in aliases)
        name = operator.name()
        self.count += not (is_view or "empty" in name or "detach" in name)
        return operator(*args, **(kwargs or {}))


def operators(dispatch: Dispatch) -> tuple[int, int]:
    """Return how many operators run forward, and backward."""
    experts = RoutedExperts(
        nn.Parameter(torch.ones(EXPERTS, 2, WIDTH, HIDDEN)),
        nn.Parameter(torch.ones(EXPERTS, HIDDEN, WIDTH)),
        activation=nn.functional.silu,
    )
    experts.dispatch = dispatch
    tokens = torch.ones(TOKENS, HIDDEN, requires_grad=True)
    chosen = torch.arange(2 * TOKENS).view(TOKENS, 2) % EXPERTS
    weights = torch.full((TOKENS, 2), 0.5, requires_grad=True)
    with CountedOperators() as forward:
        output = experts(tokens, chosen, weights)
    with CountedOperators() as backward:
        output.sum().backward()
    return forward.count, backward.count


@pytest.mark.usefixtures("lone_rank")
def test_an_exchange_runs_as_many_operators_more_as_are_priced() -> None:
    here = operators(LocalDispatch(EXPERTS))
    group = distributed.group.WORLD
    assert group is not None
    apart = operators(Exchange(group=group, expert_count=EXPERTS, copies=1))
    assert apart[0] - here[0] == EXCHANGE_FORWARD_OPERATORS
    assert apart[1] - here[1] == EXCHANGE_BACKWARD_OPERATORS
