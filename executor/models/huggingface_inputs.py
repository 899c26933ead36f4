"""Hugging Face inputs: batches of transformers' collators, as transformers' own forward reads them.

Labels are shifted by one to the left, and the last of a row compares with nothing. An attention
mask leaves keys out; without one, positions that restart begin another document (`segments`).

Source: `ForCausalLMLoss` and `LOSS_MAPPING` in transformers/loss/loss_utils.py,
`create_causal_mask` in transformers/masking_utils.py (5.23).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from executor.batch import Batch
from executor.errors import ModelMismatchError
from executor.models import segments
from executor.models.documents import with_positions
from executor.models.forward_inputs import FIRST, ForwardInputs

IGNORED_LABEL = -100
SEGMENTS = "segments"
DECODER_INPUTS = "decoder_input_ids"
_CAUSAL = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
MASK, POSITIONS, SHIFTED = "attention_mask", "position_ids", "shift_labels"


def hugging_face_inputs() -> ForwardInputs:
    """Return what chains of transformers' decoders take of a batch."""
    return ForwardInputs(
        first=FIRST,
        others=(MASK, POSITIONS),
        prepare=prepared,
        translate=with_positions,
        labels_to_targets=shifted,
        ready_targets=SHIFTED,
        ignored_label=IGNORED_LABEL,
        is_causal=True,
    )


def with_labels(inputs: ForwardInputs, model: nn.Module) -> ForwardInputs:
    """Return `inputs` with labels as transformers reads them, if `model` is one of its classes.

    Decoders compare each token with the next label. Encoder-decoders are given what the decoder
    takes where a batch has labels alone.
    """
    config: Any = getattr(model, "config", None)
    if not (hasattr(model, "loss_type") and hasattr(config, "is_encoder_decoder")):
        return inputs
    taken = replace(inputs, ignored_label=IGNORED_LABEL)
    of_labels = getattr(model, "prepare_decoder_input_ids_from_labels", None)
    if config.is_encoder_decoder and of_labels is not None:
        return replace(taken, complete=partial(with_decoder_inputs, of_labels))
    if not config.is_encoder_decoder and type(model).__name__.endswith(_CAUSAL):
        return replace(
            taken,
            labels_to_targets=shifted,
            ready_targets=SHIFTED,
            translate=with_positions,
        )
    return taken


def with_decoder_inputs(of_labels: Callable[..., torch.Tensor], batch: Batch) -> Batch:
    """Return the batch with the decoder's inputs, which it may lack."""
    if DECODER_INPUTS in batch.named or len(batch.arguments) > 1:
        return batch
    named = {**batch.named, DECODER_INPUTS: of_labels(labels=batch.targets)}
    return replace(batch, named=named)


def shifted(labels: torch.Tensor) -> torch.Tensor:
    """Return the label that each token [B, S] has to predict: the next one's."""
    return functional.pad(labels[:, 1:], (0, 1), value=IGNORED_LABEL)


def prepared(batch: Batch) -> Batch:
    """Return the batch with segments in place of an attention mask.

    Raises:
        ModelMismatchError: if a mask or positions are not one number for each token.
    """
    named = dict(batch.named)
    shape = tuple(batch.first.shape)
    for name, tensor in named.items():
        if tuple(tensor.shape) != shape:
            raise ModelMismatchError(
                f"{name} is one number for each token, of shape {shape}",
                field="loader",
                value=f"{name} of shape {tuple(tensor.shape)}",
                remedy=f"yield {name} as transformers' collators do, or leave it out",
            )
    mask, positions = named.pop(MASK, None), named.get(POSITIONS)
    found = None
    if mask is not None:
        found = segments.of_mask(mask)
    elif positions is not None:
        found = segments.of_positions(positions)
    if found is not None:
        named[SEGMENTS] = found
    return Batch(arguments=batch.arguments, named=named, targets=batch.targets)
