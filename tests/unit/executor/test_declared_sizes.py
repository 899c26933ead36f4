"""Mixtures whose shapes depend on values are traced by declared sizes, as torch itself counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

import executor
from executor.errors import ModelMismatchError
from executor.trace_command import traceable
from executor.tracing import traced

SAMPLES, TOKENS, WIDTH, EXPERTS, CHOSEN = 2, 24, 16, 4, 2
ROWS = SAMPLES * TOKENS * CHOSEN // EXPERTS  # of an expert, where routing is balanced


class Mixture(nn.Module):
    """Experts of two matrices each, of which every token takes the best by its router."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(
                nn.Linear(WIDTH, 32, bias=False), nn.ReLU(), nn.Linear(32, WIDTH, bias=False)
            )
            for _ in range(EXPERTS)
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return what the experts make of each token."""
        rows = hidden.flatten(0, 1)
        weights, chosen = self.router(rows).softmax(-1).topk(CHOSEN)
        return hidden + self.mixed(rows, weights, chosen).view_as(hidden)

    def mixed(
        self, rows: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor
    ) -> torch.Tensor:
        """Return the weighted sum, each expert's rows found by torch.where."""
        out = torch.zeros_like(rows)
        for index, expert in enumerate(self.experts):
            token, slot = torch.where(chosen == index)
            out.index_add_(0, token, expert(rows[token]) * weights[token, slot, None])
        return out


class Counting(Mixture):
    """The same with rows sorted by expert, and split by how many each has."""

    def mixed(
        self, rows: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor
    ) -> torch.Tensor:
        """Return the weighted sum."""
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=EXPERTS).tolist()
        parts = rows[order // CHOSEN].split(counts)
        done = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])
        weighted = done * weights.flatten()[order, None]
        return torch.zeros_like(rows).index_add_(0, order // CHOSEN, weighted)


class Masking(Mixture):
    """The same with masks made of one-hot rows, of experts that have any."""

    def mixed(
        self, rows: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor
    ) -> torch.Tensor:
        """Return the weighted sum."""
        masks = functional.one_hot(chosen, EXPERTS).bool()
        out = torch.zeros_like(rows)
        for index, expert in enumerate(self.experts):
            mask = masks[..., index].any(1)
            if mask.any():
                share = (weights * masks[..., index]).sum(1)
                out[mask] += expert(rows[mask]) * share[mask, None]
        return out


class Net(nn.Module):
    """Three mixtures between an embedding and a head."""

    def __init__(self, kind: type[Mixture] = Mixture) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, WIDTH)
        self.layers = nn.ModuleList(kind() for _ in range(3))
        self.head = nn.Linear(WIDTH, 64, bias=False)

    def forward(self, tokens: torch.Tensor, *, scale: torch.Tensor | None = None) -> torch.Tensor:
        """Return logits."""
        hidden = self.embed(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden if scale is None else hidden * scale)


def tokens() -> torch.Tensor:
    """Return the example batch."""
    return torch.randint(0, 64, (SAMPLES, TOKENS), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", [Mixture, Counting, Masking])
def test_a_mixture_has_the_flops_that_torch_counts(kind: type[Mixture]) -> None:
    """However uneven the real routing is, all experts together have two rows of each token."""
    trace = traced(lambda: Net(kind), (tokens(),), sizes={"layers.*": ROWS})
    torch.manual_seed(0)
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        Net(kind)(tokens())
    assert trace.forward_flop == counter.get_total_flops()
    assert [run.block_count for run in trace.graph.runs] == [3]
    assert any(text.startswith("declared: ") for text in trace.graph.assumptions)


def test_a_mixture_keeps_what_autograd_saves() -> None:
    trace = traced(Net, (tokens(),), sizes={"layers.*": ROWS})
    torch.manual_seed(0)
    module, saved = Net(), {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        output = module(tokens())
    own = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    kept = [item.untyped_storage().nbytes() for key, item in saved.items() if key not in own]
    assert output is not None
    assert trace.saved_bytes == sum(kept)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        (None, "or declare by sizes="),
        ({"trunk.*": ROWS}, "names no module of the model"),
        ({"layers.*": 0}, "must be a whole number of at least 1"),
    ],
)
def test_what_is_not_declared_well_is_said(sizes: dict[str, int] | None, said: str) -> None:
    with pytest.raises(ModelMismatchError, match=said):
        executor.trace(Net, (tokens(),), sizes=sizes)


def test_inputs_by_name_are_those_in_order() -> None:
    options: Any = {"sizes": {"layers.*": ROWS}}
    named = {"tokens": tokens(), "scale": torch.ones(SAMPLES, TOKENS, 1)}
    by_name, in_order = traced(Net, named, **options), traced(Net, (tokens(),), **options)
    assert by_name.tokens == in_order.tokens == SAMPLES * TOKENS
    assert by_name.forward_flop == in_order.forward_flop
    head = by_name.graph.measured_head, in_order.graph.measured_head
    assert head[0].kernel_count == head[1].kernel_count + 1


def test_the_command_takes_names_and_sizes(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "named_net.py").write_text(
        "def f():\n    return object, {'tokens': 1}, {'layers.*': 24}\n", encoding="utf-8"
    )
    found = traceable("named_net:f")
    assert found.example_inputs == {"tokens": 1}
    assert found.sizes == {"layers.*": 24}
