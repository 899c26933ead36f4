"""Hugging Face GPT-2: learned positions, one weight for embedding and head, no plan to split it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from executor.errors import ModelMismatchError
from executor.models.declaration import BlockDeclaration, ModelDeclaration, Shapes
from executor.models.file_names import FileNames
from executor.models.hugging_face_config import initial_value_of
from executor.models.huggingface_inputs import hugging_face_inputs
from executor.models.positions import WHOLE_SEQUENCE, SequencePart
from executor.models.segments import causal_mask


class Gpt2Backbone(nn.Module):
    """The parts of `GPT2Model`, under their names there."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.wte = model.wte
        self.wpe = model.wpe
        self.drop = model.drop
        self.h = nn.ModuleDict({str(index): block for index, block in enumerate(model.h)})
        self.ln_f = model.ln_f


class Gpt2Chain(nn.Module):
    """Tokens [B, S] to logits [B, S, V], or what is left of it after a pipeline split."""

    def __init__(self, causal_model: Any) -> None:
        super().__init__()
        self.transformer = Gpt2Backbone(causal_model.transformer)
        self.lm_head = causal_model.lm_head
        self.sequence_part = WHOLE_SEQUENCE

    def forward(
        self,
        tokens_or_hidden: torch.Tensor,
        segments: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return logits on the last stage, hidden states on the others."""
        hidden = tokens_or_hidden
        if self.transformer.wte is not None:
            self._check_length(hidden.shape[1] * self.sequence_part.count)
            positions = position_ids
            if positions is None:
                positions = self.sequence_part.positions(hidden.shape[1], hidden.device)
            hidden = self.transformer.wte(hidden) + self.transformer.wpe(positions)
            hidden = self.transformer.drop(hidden)
        mask = causal_mask(segments, self.sequence_part)
        for block in self.transformer.h.values():
            hidden = block(hidden, attention_mask=mask)
        if self.lm_head is not None:
            hidden = self.lm_head(self.transformer.ln_f(hidden))
        return hidden

    def _check_length(self, length: int) -> None:
        known = self.transformer.wpe.num_embeddings
        if length > known:
            raise ModelMismatchError(
                f"the model knows {known} positions",
                field="job.sequence_length",
                value=length,
                remedy=f"plan sequences of at most {known} tokens, or build with a larger "
                "n_positions",
            )


def gpt2_chain(causal_model: Any) -> tuple[nn.Module, ModelDeclaration]:
    """Return the model's chain and how it shards."""
    config = causal_model.config
    deviation = float(config.initializer_range)
    declaration = ModelDeclaration(
        embedding="transformer.wte",
        beside_embedding=("transformer.wpe",),
        blocks="transformer.h",
        final_norm="transformer.ln_f",
        head="lm_head",
        tied_embeddings=bool(config.tie_word_embeddings),
        block=BlockDeclaration(norms=("ln_1", "ln_2"), gathered={}, column=(), row=()),
        shapes=Shapes(
            hidden_size=config.n_embd,
            vocabulary_size=config.vocab_size,
            head_count=config.n_head,
            key_value_head_count=config.n_head,
            ffn_size=config.n_inner or 4 * config.n_embd,
        ),
        block_count=config.n_layer,
        file_names=FileNames.of(causal_model),
        # As `GPT2PreTrainedModel._init_weights`: a block adds to the stream twice.
        initial_value=initial_value_of(deviation, deviation / math.sqrt(2 * config.n_layer)),
        tell_sequence_part=_tell_sequence_part,
        inputs=hugging_face_inputs(),
        tensor_parallel_obstacle="transformers has no tensor-parallel plan of GPT-2, whose "
        "queries, keys and values are one matrix",
    )
    return Gpt2Chain(causal_model), declaration


def _tell_sequence_part(chain: nn.Module, part: SequencePart) -> None:
    assert isinstance(chain, Gpt2Chain)  # noqa: S101
    chain.sequence_part = part
