"""The unsharded run: plain torch in one process, no executor code but the initial values."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from executor.apply.materialise import materialise
from executor.data import BYTE_VALUES, corpus_batches
from executor.models.declared import declared
from executor.models.decoder import Decoder
from executor.models.first_values import DrawnValues
from planner.schema.model import ModelGraph
from tests.distributed.families import HUGGING_FACE_FIELDS, hugging_face_graph, hugging_face_model
from tests.distributed.mixture import EXPERTS_PER_TOKEN, small_mixture
from tests.distributed.plans import (
    FEWEST_BLOCKS,
    GLOBAL_BATCH_SIZE,
    SEQUENCE_LENGTH,
    block_count_of,
    small_model,
)

SEED = 0
STEP_COUNT = 2  # the second meets what an update has left, and its own meets the optimizer's state
ODD_VOCABULARY = 257
SHORT = "decoder-2"
LEARNING_RATE = 1e-3
# Adam amplifies differences of near-zero gradients unless its epsilon is well above them.
EPSILON = 1e-4
MASKED = -100  # as torch's cross-entropy leaves targets out


@dataclass(frozen=True)
class ReferenceRun:
    """What the unsharded run gave, by the unsplit model's names."""

    losses: list[float]
    first_gradients: dict[str, torch.Tensor]
    parameters: dict[str, torch.Tensor]


def sized(kind: str, strategy: Mapping[str, Any]) -> str:
    """Return `kind` with as few blocks as `strategy` has room for, unless it says how many."""
    return kind if kind.rpartition("-")[2].isdigit() else f"{kind}-{block_count_of(strategy)}"


def planned_model(kind: str) -> ModelGraph:
    """Return the graph of a model of `kind`, for plans."""
    family, *words = kind.split("-")
    is_tied = "tied" in {family, *words}
    block_count = int(words[-1]) if words and words[-1].isdigit() else FEWEST_BLOCKS
    if family in HUGGING_FACE_FIELDS:
        return hugging_face_graph(family, tied=is_tied, block_count=block_count)
    if family == "mixture":
        return small_mixture(tied=is_tied, block_count=block_count)
    vocabulary_size = ODD_VOCABULARY if family == "odd" else BYTE_VALUES
    return small_model(tied=is_tied, block_count=block_count, vocabulary_size=vocabulary_size)


def build_model(kind: str) -> nn.Module:
    """Return a model of `kind` on the current default device.

    A kind is decoder, tied, odd, odd-tied (a prime vocabulary), mixture, mixture-tied, or one of
    transformers' families, with "-tied" behind it for one weight of embedding and head. Behind that
    stands the number of blocks, where there are more than two.
    """
    family = kind.partition("-")[0]
    graph = planned_model(kind)
    if family in HUGGING_FACE_FIELDS:
        tied = graph.tied_embeddings
        return hugging_face_model(family, tied=tied, block_count=graph.block_count)
    return Decoder(graph)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    """Return the optimizer of every run compared here."""
    return torch.optim.AdamW(parameters, lr=LEARNING_RATE, eps=EPSILON)


def global_batches(
    first: int, count: int, *, masked: bool = False
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return global batches `first` to `first + count` of the shipped corpus.

    Where they are masked, targets count for nothing: all of the first row's, and of each other row
    the first few, more from row to row.
    """
    batches = corpus_batches(global_batch_size=GLOBAL_BATCH_SIZE, sequence_length=SEQUENCE_LENGTH)
    found = list(islice(batches, first, first + count))
    if masked:
        rows = torch.arange(GLOBAL_BATCH_SIZE)[:, None]
        is_left_out = torch.arange(SEQUENCE_LENGTH) < (2 * rows - 1) % (SEQUENCE_LENGTH + 1)
        found = [(inputs, targets.masked_fill(is_left_out, MASKED)) for inputs, targets in found]
    return found


@contextmanager
def floats_of(bits: int) -> Iterator[None]:
    """Let models be made and trained in floats of 32 or 64 bits inside the block."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype({32: torch.float32, 64: torch.float64}[bits])
    try:
        yield
    finally:
        torch.set_default_dtype(usual)


@functools.cache
def reference_run(
    kind: str,
    step_count: int = STEP_COUNT,
    *,
    masked: bool = False,
    weighted: bool = False,
    drawn_bits: int = 64,
) -> ReferenceRun:
    """Train the whole model on whole global batches in fp64, from values drawn in so many bits."""
    with floats_of(drawn_bits):
        model = initialised(kind)
    with floats_of(64):
        return _trained(model.double(), step_count, masked=masked, weighted=weighted)


def floats_differences(texts: Iterable[str]) -> list[str]:
    """Return what a report says of layout and plan, but for the fp64 that a test has asked for."""
    return [text for text in texts if "torch.float64" not in text]


def smallest_routing_margin(kind: str, *, bits: int) -> float:
    """Return how close any token's last chosen expert came to the first left out, of all steps."""
    with floats_of(bits):
        return _smallest_margin(initialised(kind))


def _smallest_margin(model: nn.Module) -> float:
    margins: list[float] = []

    def measure(_module: nn.Module, _arguments: Any, output: Any) -> None:
        logits = output[0] if isinstance(output, tuple) else output
        shares = logits.softmax(dim=-1).topk(EXPERTS_PER_TOKEN + 1, dim=-1).values
        margins.append((shares[..., -2] - shares[..., -1]).min().item())

    for name, module in model.named_modules():
        if name.endswith((".router", "mlp.gate")):
            module.register_forward_hook(measure)
    _trained(model, STEP_COUNT)
    return min(margins)


def class_weights(count: int) -> torch.Tensor:
    """Return what targets of each class weigh: from 1 to 8, and nothing of every seventh."""
    tokens = torch.arange(count)
    return torch.where(tokens % 7 == 0, 0.0, 1.0 + tokens % 8)


def _trained(
    model: nn.Module, step_count: int, *, masked: bool = False, weighted: bool = False
) -> ReferenceRun:
    optimizer = adamw(model.parameters())
    losses: list[float] = []
    first_gradients: dict[str, torch.Tensor] = {}
    for inputs, targets in global_batches(0, step_count, masked=masked):
        optimizer.zero_grad()
        logits = model(inputs)
        logits = logits if isinstance(logits, torch.Tensor) else logits.logits
        weights = class_weights(logits.shape[-1]) if weighted else None
        loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), weights)
        loss.backward()
        if not losses:
            first_gradients = {
                name: parameter.grad.clone() for name, parameter in model.named_parameters()
            }
        optimizer.step()
        losses.append(loss.item())
    parameters = {name: value.detach().clone() for name, value in model.named_parameters()}
    return ReferenceRun(losses=losses, first_gradients=first_gradients, parameters=parameters)


def initialised(kind: str) -> nn.Module:
    """Return the model with the values that the executor gives it, as its own class."""
    with torch.device("meta"):
        chain, declaration = declared(build_model(kind))
    assert declaration.initial_value is not None
    values = DrawnValues(declaration.initial_value, seed=SEED)
    materialise(chain, declaration=declaration, device=torch.device("cpu"), values=values)
    if isinstance(chain, Decoder):
        return chain
    model = build_model(kind)
    values = dict(chain.named_parameters())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(values[name].view_as(parameter))
    return model
