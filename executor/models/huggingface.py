"""Hugging Face Llama: the same weights and names, as a chain that the pipeline can split.

`LlamaModel.forward` needs all of its parts and prepares caches and masks that training does not
use. The chain calls the same layers with rotary angles alone. transformers is not imported: the
model itself brings its classes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from executor.errors import UnsupportedPlanError
from executor.models.declaration import BlockDeclaration, ModelDeclaration, Shapes

_MODULE = "transformers.models.llama.modeling_llama"
_CLASS = "LlamaForCausalLM"


class LlamaBackbone(nn.Module):
    """The parts of `LlamaModel`, under their names there."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.embed_tokens = model.embed_tokens
        self.layers = nn.ModuleDict({str(i): layer for i, layer in enumerate(model.layers)})
        self.norm = model.norm
        self.rotary_emb = model.rotary_emb


class LlamaChain(nn.Module):
    """Tokens [B, S] to logits [B, S, V], or what is left of it after a pipeline split."""

    def __init__(self, causal_model: Any) -> None:
        super().__init__()
        self.model = LlamaBackbone(causal_model.model)
        self.lm_head = causal_model.lm_head
        self.sequence_parts = 1

    def forward(self, tokens_or_hidden: torch.Tensor) -> torch.Tensor:
        """Return logits on the last stage, hidden states on the others."""
        hidden = tokens_or_hidden
        if self.model.embed_tokens is not None:
            hidden = self.model.embed_tokens(hidden)
        length = hidden.shape[1] * self.sequence_parts
        positions = torch.arange(length, device=hidden.device).unsqueeze(0)
        angles = self.model.rotary_emb(hidden, position_ids=positions)
        for layer in self.model.layers.values():
            hidden = layer(hidden, position_embeddings=angles)
        if self.lm_head is not None:
            hidden = self.lm_head(self.model.norm(hidden))
        return hidden


def is_hugging_face_llama(model: nn.Module) -> bool:
    """Return whether `model` is transformers' LlamaForCausalLM."""
    kind = type(model)
    return kind.__module__ == _MODULE and kind.__name__ == _CLASS


def llama_chain(causal_model: Any) -> tuple[nn.Module, ModelDeclaration]:
    """Return the model's chain and how it shards.

    Raises:
        UnsupportedPlanError: if its attention is not torch's scaled dot product.
    """
    config = causal_model.config
    attention = config._attn_implementation  # noqa: SLF001 - transformers has no public name
    if attention != "sdpa":
        raise UnsupportedPlanError(
            "the executor needs torch's scaled dot product attention",
            field="config.attn_implementation",
            value=attention,
            remedy='build with LlamaConfig(attn_implementation="sdpa")',
        )
    standard_deviation = float(config.initializer_range)

    def initial_value(name: str, shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
        if name.endswith("norm.weight"):
            return torch.ones(shape)
        if name.endswith("bias"):
            return torch.zeros(shape)
        return torch.empty(shape).normal_(std=standard_deviation, generator=generator)

    declaration = ModelDeclaration(
        embedding="model.embed_tokens",
        blocks="model.layers",
        final_norm="model.norm",
        head="lm_head",
        tied_embeddings=bool(config.tie_word_embeddings),
        block=_BLOCK,
        shapes=Shapes(
            hidden_size=config.hidden_size,
            vocabulary_size=config.vocab_size,
            head_count=config.num_attention_heads,
            key_value_head_count=config.num_key_value_heads,
            ffn_size=config.intermediate_size,
        ),
        block_count=config.num_hidden_layers,
        initial_value=initial_value,
        tell_sequence_parts=_tell_sequence_parts,
        restore_buffers=_restore_rotary,
    )
    return LlamaChain(causal_model), declaration


_BLOCK = BlockDeclaration(
    norms=("input_layernorm", "post_attention_layernorm"),
    gathered={"self_attn": "hidden_states", "mlp": None},
    column=(
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "mlp.gate_proj",
        "mlp.up_proj",
    ),
    row=("self_attn.o_proj", "mlp.down_proj"),
)


def _tell_sequence_parts(chain: nn.Module, count: int) -> None:
    assert isinstance(chain, LlamaChain)  # noqa: S101
    chain.sequence_parts = count


def _restore_rotary(chain: nn.Module, device: torch.device) -> None:
    """Compute the rotary frequencies again: no checkpoint holds them."""
    assert isinstance(chain, LlamaChain)  # noqa: S101
    rotary: Any = chain.model.rotary_emb
    chain.model.rotary_emb = type(rotary)(rotary.config).to(device)
