"""Tasks about a step's numbers: losses that are none, formats, and what the report says of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed, nn
from torch.nn import functional

from executor.models.own import Declaration
from executor.session import Session
from planner.errors import InputError
from tests.distributed.own_models import (
    HEADS,
    WIDTH,
    WORDS,
    Attention,
    Words,
    loss,
    parameter_error,
    plain_run,
)
from tests.distributed.plans import cpu_plan
from tests.distributed.reference import SEED, adamw, global_batches
from tests.distributed.state_tasks import everyone

CPU = torch.device("cpu")


def undefined_loss(*, strategy: dict[str, Any], reaction: str, rank: int) -> dict[str, Any]:
    """Train three steps, of which the second has no loss on one rank; compare without it."""
    session = Session(cpu_plan(**strategy), device=CPU)
    steps: list[int] = []

    def broken(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        is_broken = len(steps) == 2 and distributed.get_rank() == rank
        return loss(logits, targets) * (math.nan if is_broken else 1.0)

    trainer = session.parallelize(
        Words, broken, adamw, declaration=WORDS, seed=SEED, on_undefined_loss=reaction
    )
    losses, skipped, message = [], [], ""
    try:
        for batch in session.shard(global_batches(0, 3)):
            steps.append(len(steps))
            metrics = trainer.step(*batch)
            losses.append(metrics.loss if math.isfinite(metrics.loss) else None)
            skipped.append(metrics.was_skipped)
    except InputError as error:
        message = str(error)
    first, _, third = global_batches(0, 3)
    expected = plain_run(Words, SEED, [first, third])
    found = session.report().undefined_losses
    return {
        "losses": losses,
        "skipped": skipped,
        "messages": everyone([message]),
        "without": expected["losses"],
        "parameter_error": parameter_error(trainer, expected["parameters"]),
        "found": None if found is None else found.model_dump(),
    }


class TurningAttention(Attention):
    """Attention whose queries and keys are turned by tables in fp32, as rotary ones are."""

    def __init__(self) -> None:
        super().__init__()
        size = WIDTH // HEADS
        angles = torch.arange(16.0, dtype=torch.float32)[:, None] / torch.arange(1.0, size + 1)
        self.register_buffer("cosine", angles.cos().float(), persistent=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return what each token gathers; values stay in the format of the weights."""
        batch, length, _ = hidden.shape
        query, key, value = (
            projection(hidden).view(batch, length, -1, WIDTH // HEADS).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(
            query * self.cosine, key * self.cosine, value, is_causal=True
        )
        return self.out(mixed.transpose(1, 2).flatten(2))


class Turning(Words):
    """The language model with tables in fp32, and a head that is given fp32."""

    def __init__(self) -> None:
        super().__init__()
        for layer in self.trunk.layers:
            layer.attention = TurningAttention()
        self.register_buffer("factor", torch.ones((), dtype=torch.float32), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        hidden = self.embed(tokens)
        for layer in self.trunk.layers:
            hidden = layer(hidden)
        return self.head(self.norm(hidden) * self.factor.reshape(1))


def formats(
    *,
    strategy: dict[str, Any],
    precision: str,
    output: str | None = None,
    declared: bool = True,
) -> dict[str, Any]:
    """Train in 16 bits beside tables in fp32; compare with autocast of one process."""
    session = Session(cpu_plan(precision=precision, **strategy), device=CPU)
    seen: list[str] = []

    def watched(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        seen.append(str(logits.dtype))
        return loss(logits, targets)

    trainer = session.parallelize(
        Turning,
        watched,
        adamw,
        declaration=Declaration(blocks="trunk.layers") if declared else None,
        seed=SEED,
        output_dtype=None if output is None else getattr(torch, output),
    )
    seen.clear()  # it was tried
    (batch,) = global_batches(0, 1)
    (share,) = session.shard([batch])
    applied = session.report().numerics
    assert applied is not None
    return {
        "loss": trainer.step(*share).loss,
        "autocast": _autocast_loss(batch),
        "seen": sorted({item for part in everyone([seen]) for item in part}),
        "applied": applied.model_dump(),
    }


def _autocast_loss(batch: tuple[torch.Tensor, torch.Tensor]) -> float:
    torch.manual_seed(SEED)
    model: nn.Module = Turning().float()
    inputs, targets = batch
    with torch.autocast("cpu", torch.bfloat16):
        return loss(model(inputs), targets).item()


NUMERICS_TASKS: tuple[Callable[..., dict[str, Any]], ...] = (undefined_loss, formats)
