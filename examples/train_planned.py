"""The same script under a plan: `meshwright run plan.json -- examples/train_planned.py`.

All lines but a few in `main` are those of `train_plain.py`, whose clipping is `max_gradient_norm`.
Its plan: `meshwright trace examples/train_planned.py:traceable --out words.json`, and `meshwright
plan words.json CLUSTER`.
"""
# ruff: noqa: INP001, T201 - a script, which prints

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import meshwright  # Meshwright

VOCABULARY, WIDTH, HEADS, BLOCKS, LENGTH, BATCH, STEPS = 64, 32, 4, 4, 16, 8, 5


class Block(nn.Module):
    """Causal attention and two matrices, each behind a norm and beside a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the block's output, [B, S, D]."""
        heads = self.mixed(self.norm1(hidden)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*heads, is_causal=True)
        hidden = hidden + self.out(seen.transpose(1, 2).flatten(2))
        return hidden + self.down(functional.gelu(self.up(self.norm2(hidden))))


class Words(nn.Module):
    """Tokens [B, S] to logits [B, S, V]."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of every next token."""
        hidden = self.embed(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden))


def loss_function(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy over tokens, and a little of the logits' own size."""
    entropy = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    return entropy + 1e-4 * logits.square().mean()


def loader() -> DataLoader:
    """Return shuffled sequences in which each token is three more than the one before it."""
    starts = torch.arange(BATCH * STEPS).unsqueeze(1)
    tokens = (starts + 3 * torch.arange(LENGTH + 1)) % VOCABULARY
    rows = TensorDataset(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
    order = torch.Generator().manual_seed(1)
    return DataLoader(rows, batch_size=BATCH, shuffle=True, generator=order)


def optimizer_function(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimizer."""
    return torch.optim.AdamW(parameters, lr=1e-2, eps=1e-4)


def traceable() -> tuple[type[Words], tuple[torch.Tensor]]:
    """Return the model and the inputs of one forward."""
    return Words, (torch.zeros(BATCH, LENGTH, dtype=torch.long),)


def main() -> None:
    """Train and print the loss of each step."""
    session = meshwright.start()  # Meshwright
    own = meshwright.Declaration(embedding="embed", blocks="blocks", final_norm="norm", head="head")
    trainer = session.parallelize(
        Words, loss_function, optimizer_function, declaration=own, max_gradient_norm=1.0
    )
    for step, (inputs, targets) in enumerate(session.shard(loader())):  # Meshwright
        loss = trainer.step(inputs, targets).loss  # Meshwright
        if torch.distributed.get_rank() == 0:  # Meshwright
            print(f"step {step + 1}: loss {loss:.6f}")


if __name__ == "__main__":
    main()
