"""The unsharded run: plain torch in one process, no executor code but the initial values."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from executor.apply.materialise import materialise
from executor.data import corpus_batches
from executor.models.decoder import Decoder
from executor.models.huggingface import llama_chain
from tests.distributed.mixture import EXPERTS_PER_TOKEN, small_mixture
from tests.distributed.plans import (
    BLOCK_COUNT,
    DEEP_BLOCK_COUNT,
    GLOBAL_BATCH_SIZE,
    SEQUENCE_LENGTH,
    small_model,
)

SEED = 0
STEP_COUNT = 5
LEARNING_RATE = 1e-3
# Adam amplifies differences of near-zero gradients unless its epsilon is well above them.
EPSILON = 1e-4


@dataclass(frozen=True)
class ReferenceRun:
    """What the unsharded run gave, by the unsplit model's names."""

    losses: list[float]
    first_gradients: dict[str, torch.Tensor]
    parameters: dict[str, torch.Tensor]


def build_model(kind: str) -> nn.Module:
    """Return a model of `kind` (decoder, tied, deep, llama) on the current default device."""
    if kind.startswith("mixture"):
        return Decoder(small_mixture(tied=kind == "mixture-tied"))
    if kind.startswith("llama"):
        return LlamaForCausalLM(_llama_config(tied=kind == "llama-tied"))
    block_count = DEEP_BLOCK_COUNT if kind.startswith("deep") else BLOCK_COUNT
    return Decoder(small_model(tied=kind.endswith("tied"), block_count=block_count))


def adamw(parameters: Any) -> torch.optim.Optimizer:
    """Return the optimizer of every run compared here."""
    return torch.optim.AdamW(parameters, lr=LEARNING_RATE, eps=EPSILON)


def global_batches(first: int, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return global batches `first` to `first + count` of the shipped corpus."""
    batches = corpus_batches(global_batch_size=GLOBAL_BATCH_SIZE, sequence_length=SEQUENCE_LENGTH)
    return list(islice(batches, first, first + count))


@functools.cache
def reference_run(kind: str, step_count: int = STEP_COUNT) -> ReferenceRun:
    """Train the whole model on whole global batches."""
    return _trained(_initialised(kind), step_count)


def smallest_routing_margin(kind: str) -> float:
    """Return how close any token's last chosen expert came to the first left out, of all steps."""
    model = _initialised(kind)
    margins: list[float] = []

    def measure(_module: nn.Module, _arguments: Any, logits: torch.Tensor) -> None:
        shares = logits.softmax(dim=-1).topk(EXPERTS_PER_TOKEN + 1, dim=-1).values
        margins.append((shares[..., -2] - shares[..., -1]).min().item())

    for name, module in model.named_modules():
        if name.endswith("router"):
            module.register_forward_hook(measure)
    _trained(model, STEP_COUNT)
    return min(margins)


def _trained(model: nn.Module, step_count: int) -> ReferenceRun:
    optimizer = adamw(model.parameters())
    losses: list[float] = []
    first_gradients: dict[str, torch.Tensor] = {}
    for inputs, targets in global_batches(0, step_count):
        optimizer.zero_grad()
        logits = model(inputs)
        logits = logits if isinstance(logits, torch.Tensor) else logits.logits
        loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        if not losses:
            first_gradients = {
                name: parameter.grad.clone() for name, parameter in model.named_parameters()
            }
        optimizer.step()
        losses.append(loss.item())
    parameters = {name: value.detach().clone() for name, value in model.named_parameters()}
    return ReferenceRun(losses=losses, first_gradients=first_gradients, parameters=parameters)


def _initialised(kind: str) -> nn.Module:
    model = build_model(kind)
    device = torch.device("cpu")
    if isinstance(model, Decoder):
        materialise(model, declaration=model.declaration(), device=device, seed=SEED)
        return model
    chain, declaration = llama_chain(model)
    materialise(chain, declaration=declaration, device=device, seed=SEED)
    model.model.rotary_emb = chain.model.rotary_emb
    return model


def _llama_config(*, tied: bool) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=BLOCK_COUNT,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=8,
        vocab_size=256,
        max_position_embeddings=128,
        tie_word_embeddings=tied,
        attn_implementation="sdpa",
        use_cache=False,
    )
