"""What looks at all that a column linear puts out is told from what looks at heads or features."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="no package torch")

import torch
from torch import nn
from torch.nn import functional

from executor.models.feature_local import is_feature_local

Between = Callable[[torch.Tensor], torch.Tensor]


class Model(nn.Module):
    """Attention of four heads of two, and two linears with a `between`."""

    def __init__(self, between: Between) -> None:
        super().__init__()
        self.between, self.drop = between, nn.Dropout(0.5)
        self.embed, self.norm, self.head = nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 11)
        self.query, self.value, self.out = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.up, self.down = nn.Linear(8, 12), nn.Linear(12, 8)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        hidden = self.embed(tokens)
        query, value = (
            item(self.norm(hidden)).unflatten(2, (-1, 2)).transpose(1, 2)
            for item in (self.query, self.value)
        )
        mixed = functional.scaled_dot_product_attention(query, query, value, is_causal=True)
        hidden = hidden + self.out(mixed.transpose(1, 2).flatten(2))
        return self.head(hidden + self.drop(self.down(self.between(self.up(hidden)))))


CASES: dict[str, tuple[Between, bool | None]] = {
    "each feature": (functional.gelu, True),
    "a mean of features": (lambda hidden: hidden - hidden.mean(-1, keepdim=True), False),
    "a softmax over features": (lambda hidden: hidden.softmax(-1), False),
    "a norm of them": (lambda hidden: functional.normalize(hidden, dim=-1), False),
    "of this width alone": (lambda hidden: functional.layer_norm(hidden, (12,)), None),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("degree", [2, 4])
def test_what_needs_all_features_is_found(case: str, degree: int) -> None:
    between, expected = CASES[case]
    with torch.device("meta"):
        model = Model(between)
    found = is_feature_local(
        model,
        degree,
        column=["query", "value", "up"],
        row=["out", "down"],
        head="head",
        token_count=11,
    )
    assert found is expected
    assert model.training
