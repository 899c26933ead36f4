"""Modules of a user's own that take more than one tensor, and their plain runs."""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.tensor import DTensor
from torch.nn import functional

from executor.apply.materialise import unsplit_name
from executor.models.own import Declaration
from executor.session import Session
from tests.distributed.own_models import VOCABULARY, WIDTH, Attention, Perceptron, loss
from tests.distributed.plans import FEWEST_BLOCKS, GLOBAL_BATCH_SIZE, SEQUENCE_LENGTH, cpu_plan
from tests.distributed.reference import SEED, adamw
from tests.distributed.rounding import relative_error

STEPS = 2


class Masked(nn.Module):
    """A layer that keeps tokens out of its attention's input, and knows places."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.mlp = Attention(), Perceptron()

    def forward(self, hidden: torch.Tensor, *, kept: torch.Tensor) -> torch.Tensor:
        """Return the layer's output."""
        hidden = hidden + self.attention(self.norm1(hidden) * kept.unsqueeze(-1))
        return hidden + self.mlp(self.norm2(hidden))


class PlacedWords(nn.Module):
    """Words at places that are given."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(SEQUENCE_LENGTH, WIDTH)

    def forward(self, tokens: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Return the tokens' vectors."""
        return self.words(tokens) + self.places(places)


class Taking(nn.Module):
    """A language model that is given places and a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = PlacedWords()
        self.layers = nn.ModuleList(Masked() for _ in range(FEWEST_BLOCKS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(
        self, tokens: torch.Tensor, places: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return logits."""
        hidden = self.embed(tokens, places)
        for layer in self.layers:
            hidden = layer(hidden, kept=mask)
        return self.head(self.norm(hidden))


class Translating(nn.Module):
    """An encoder and a decoder, of which nothing is declared."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = (nn.Embedding(VOCABULARY, WIDTH) for _ in range(2))
        self.model = nn.Transformer(
            WIDTH, 4, 1, 1, 64, dropout=0.0, batch_first=True, norm_first=True
        )
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(
        self, source: torch.Tensor, target: torch.Tensor, source_mask: torch.Tensor
    ) -> torch.Tensor:
        """Return logits of every next target."""
        later = torch.ones(target.shape[1:] * 2, dtype=torch.bool).triu(1)
        mixed = self.model(
            self.source(source),
            self.target(target),
            tgt_mask=later,
            src_key_padding_mask=source_mask == 0,
            memory_key_padding_mask=source_mask == 0,
        )
        return self.head(mixed)


TAKING = Declaration(
    embedding="embed", blocks="layers", final_norm="norm", head="head", inputs=("mask",)
)
KINDS: dict[str, tuple[type[nn.Module], Declaration | None]] = {
    "taking": (Taking, TAKING),
    "translating": (Translating, None),
}


def batches(kind: str) -> list[tuple[dict[str, torch.Tensor], torch.Tensor]]:
    """Return inputs by name, and targets."""
    generator = torch.Generator().manual_seed(5)
    made = []
    for _ in range(STEPS):
        shape = (GLOBAL_BATCH_SIZE, SEQUENCE_LENGTH)
        tokens, targets, places = (
            torch.randint(0, size, shape, generator=generator)
            for size in (VOCABULARY, VOCABULARY, SEQUENCE_LENGTH)
        )
        mask = (torch.arange(SEQUENCE_LENGTH) < 9).long().expand(shape).contiguous()
        if kind == "taking":
            made.append(({"tokens": tokens, "places": places, "mask": mask}, targets))
        else:
            short = {"source": tokens, "target": places[:, :7], "source_mask": mask}
            made.append((short, targets[:, :7]))
    return made


def own_batch_parity(*, strategy: dict[str, Any], kind: str, by_name: bool) -> dict[str, Any]:
    """Train on batches of several tensors, as a mapping or in a row, and plainly."""
    build, declaration = KINDS[kind]
    session = Session(cpu_plan(**strategy), device=torch.device("cpu"))
    trainer = session.parallelize(
        build, loss, adamw, declaration=declaration, seed=SEED, target_name="answers"
    )
    given: list[Any] = [
        {**inputs, "answers": targets} if by_name else (*inputs.values(), targets)
        for inputs, targets in batches(kind)
    ]
    losses = [
        trainer.step(*((batch,) if by_name else batch)).loss for batch in session.shard(given)
    ]
    torch.manual_seed(SEED)
    model = build()
    optimizer = adamw(model.parameters())
    plain_losses = []
    for inputs, targets in batches(kind):
        optimizer.zero_grad()
        value = functional.cross_entropy(model(**inputs).flatten(0, 1), targets.flatten())
        value.backward()
        optimizer.step()
        plain_losses.append(value.item())
    expected = dict(model.named_parameters())
    error = torch.zeros((), dtype=torch.float64)
    for name, parameter in trainer.model.named_parameters():
        whole = parameter.detach()
        whole = whole.full_tensor() if isinstance(whole, DTensor) else whole
        plain = expected[unsplit_name(name, trainer.declaration)].detach()
        error = error.clamp(min=relative_error(whole, plain))
    distributed.all_reduce(error, op=distributed.ReduceOp.MAX)
    return {"losses": losses, "plain_losses": plain_losses, "parameter_error": float(error)}
