"""What looks at other tokens outside of the modules that gather them is told from what does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="no package torch")

import torch
from torch import nn
from torch.nn import functional

from executor.models.positions import SequencePart
from executor.models.token_local import is_token_local

Between = Callable[[torch.Tensor], torch.Tensor]


class Mixing(nn.Module):
    """Attention that gives a cache as well, if it is asked to."""

    def __init__(self, *, has_cache: bool) -> None:
        super().__init__()
        self.weight, self.has_cache = nn.Linear(6, 6), has_cache

    def forward(self, hidden: torch.Tensor) -> object:
        """Return the mean of all tokens."""
        mixed = self.weight(hidden).mean(1, keepdim=True).expand_as(hidden)
        return (mixed, hidden) if self.has_cache else mixed


class Model(nn.Module):
    """An embedding, one block of two parts, a norm and a head; `between` comes behind the first."""

    def __init__(self, between: Between, *, has_cache: bool = False) -> None:
        super().__init__()
        self.between, self.has_cache = between, has_cache
        self.embed, self.norm, self.drop = nn.Embedding(11, 6), nn.LayerNorm(6), nn.Dropout(0.5)
        self.mix, self.head = Mixing(has_cache=has_cache), nn.Linear(6, 11)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        hidden = self.between(self.embed(tokens)) + tokens.sum()  # whole, as all ranks have them
        mixed = self.mix(self.norm(hidden))
        if self.has_cache:
            mixed, _ = mixed
        return self.head(self.drop(hidden + mixed))


CASES: dict[str, tuple[Between, bool | None]] = {
    "nothing": (lambda hidden: hidden, True),
    "scaled": (lambda hidden: 3.0 * torch.tanh(hidden), True),
    "centred": (lambda hidden: hidden - hidden.mean(1, keepdim=True), False),
    "shifted": (lambda hidden: hidden + hidden.roll(1, dims=1), False),
    "placed": (lambda hidden: hidden + torch.arange(hidden.shape[1]).view(1, -1, 1), False),
    "last alone": (lambda hidden: hidden[:, -1], False),
    "of this length alone": (lambda hidden: hidden.view(1, 3, 5, 6), None),
}


@pytest.mark.parametrize("has_cache", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_what_needs_other_tokens_is_found(case: str, has_cache: bool) -> None:
    between, expected = CASES[case]
    with torch.device("meta"):
        model = Model(between, has_cache=has_cache)
    found = is_token_local(model, ["mix"], embedding="embed", head="head", token_count=11)
    assert found is expected
    assert model.training
    assert model.mix.forward.__func__ is Mixing.forward  # type: ignore[attr-defined]


class Attending(nn.Module):
    """Attention of torch's beside a `between`, of fewer heads than it asks with, and places."""

    def __init__(self, between: Between) -> None:
        super().__init__()
        self.between, self.part = between, SequencePart()
        self.embed, self.places = nn.Embedding(11, 6), nn.Embedding(8, 6)
        self.query, self.value, self.head = nn.Linear(6, 6), nn.Linear(6, 3), nn.Linear(6, 11)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        hidden = self.embed(tokens) + self.places(self.part.positions(tokens.shape[1]))
        query = self.query(hidden).unflatten(2, (2, 3)).transpose(1, 2)
        value = self.value(hidden).unsqueeze(1)
        mixed = functional.scaled_dot_product_attention(query, value, value, enable_gqa=True)
        return self.head(self.between(hidden) + mixed.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("case", ["nothing", "scaled", "centred", "shifted", "placed"])
def test_torchs_attention_may_look_at_others_where_places_are_told(case: str) -> None:
    between, expected = CASES[case]
    with torch.device("meta"):
        model = Attending(between)
    found = is_token_local(
        model,
        embedding="embed",
        head="head",
        token_count=11,
        tell=lambda item, part: setattr(item, "part", part),
    )
    assert found is expected
    assert model.part == SequencePart()
    untold = is_token_local(
        model, embedding="embed", head="head", token_count=11, tell=lambda *_given: None
    )
    assert untold is False


def test_a_forward_that_a_script_put_in_place_of_a_modules_own_stays() -> None:
    model = Model(lambda hidden: hidden)
    model.head.forward = functional.relu  # type: ignore[method-assign]
    is_token_local(model, ["mix"], head="head", embedding="embed", token_count=11)
    assert model.head.forward is functional.relu
    assert "forward" not in vars(model.mix)
