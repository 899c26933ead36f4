"""Activations: what a layer keeps from its forward to its backward, and has live between."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from planner.cost.adapters import kept_elements, unpacked_bytes
from planner.cost.configuration import Choices, Floats
from planner.cost.setting import Setting, key_value_copies, layer_tokens, source_tokens
from planner.schema.job import Softmax
from planner.workload.layer import ActivationElements, LayerWorkload

_WIDE_BYTES = 4
_Kept = Literal["none", "selective", "full"]


def _kept_bytes(layer: LayerWorkload, kept: _Kept, setting: Setting) -> Floats:
    """Return what one micro-batch keeps on one device under a choice, [configurations, 1]."""
    own: ActivationElements = getattr(layer.activations, kept)
    if kept == "none":
        own = kept_elements(own, layer, setting.job)
        if setting.casts_again:
            own = replace(own, gathered=0.0, products=0.0)
    tokens = layer_tokens(layer, setting)
    total = _bytes_of(own, tokens, setting)
    copied = own.key_values * key_value_copies(layer.attention, setting)
    total = total + tokens * setting.compute_bytes * copied
    for source in layer.sources:
        elements: ActivationElements = getattr(source.activations, kept)
        total = total + _bytes_of(elements, source_tokens(source, setting), setting)
    return total


def _bytes_of(elements: ActivationElements, tokens: Floats, setting: Setting) -> Floats:
    """Return the bytes of `elements` for each of `tokens` on one device, [configurations, 1].

    The stack and the job say whether fused kernels of norms and gates spare copies and whether
    inputs of column-split products are gathered anew in backward, the stack whether products keep
    what they read in 8 bits under fp8.
    """
    keeps, spread = (
        setting.stack.activations,
        np.where(setting.sequence_parallel, setting.tensor, 1.0),
    )
    narrow = elements.replicated / spread + elements.sharded / setting.tensor
    narrow = narrow + np.where(setting.tensor > 1.0, elements.reduced / spread, 0.0)
    wide = elements.float32 / setting.tensor
    if setting.unfused_norms:
        narrow = narrow + elements.norm_copies / spread
    if setting.unfused:
        narrow = narrow + elements.step_copies / setting.tensor
        wide = wide + elements.wide_step_copies / setting.tensor
    if not keeps.fused or setting.job.fused_elementwise is False:
        narrow = narrow + elements.row_copies / setting.tensor
    again = keeps.gathers_again or setting.job.regathered_rows
    read = elements.gathered / (spread if again else 1.0)
    read = read + elements.products / setting.tensor
    routed = elements.routed / 2.0 * setting.expert_tensor / setting.tensor
    read = read + routed
    if keeps.keeps_expert_outputs:
        narrow = narrow + routed
    masks = elements.masks / spread if setting.job.dropout else 0.0
    return tokens * (
        setting.compute_bytes * narrow + setting.product_input_bytes * read + 4.0 * wide + masks
    )


def _score_bytes(layer: LayerWorkload, setting: Setting) -> Floats:
    """Return what attention keeps of its scores where it is not fused, [configurations, 1].

    The softmax, and under dropout its mask and what is left of it: 5 a s^2 b in 16 bits. In wide
    steps it is worked out in fp32, by autocast or as transformers' layers ask for it, and kept
    beside what the next product reads: 6 bytes, and a mask.
    Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.1; transformers 5 `llama`, `gpt2`
    and `bert` under eager attention, counted by what autograd saves.
    """
    dropout = setting.job.dropout
    is_wide = setting.softmax is Softmax.WIDE_STEPS and setting.compute_bytes != _WIDE_BYTES
    if not is_wide:
        per_score = setting.compute_bytes * (2 if dropout else 1)
    else:
        per_score = _WIDE_BYTES + setting.compute_bytes
    return _scores(layer, setting) * (per_score + (1 if dropout else 0))


def _scores(layer: LayerWorkload, setting: Setting) -> Floats:
    """Return how many scores attention writes on one device, [configurations, 1]."""
    if setting.job.fused_attention or layer.attention is None:
        return np.zeros_like(setting.tokens)
    keys = layer.token_count(setting.sequence_length) / setting.context
    heads = layer.attention.head_count / setting.tensor
    return layer_tokens(layer, setting) * keys * heads


def activation_bytes(layer: LayerWorkload, choices: Choices, setting: Setting) -> Floats:
    """Return what one micro-batch keeps, wherever it is kept, [configurations, choices]."""
    return np.where(
        choices.full,
        _kept_bytes(layer, "full", setting),
        np.where(
            choices.selective,
            _kept_bytes(layer, _kept_when_selective(setting), setting),
            all_bytes(layer, setting),
        ),
    )


def _kept_when_selective(setting: Setting) -> _Kept:
    return "none" if setting.core_alone_runs_again else "selective"


def all_bytes(layer: LayerWorkload, setting: Setting) -> Floats:
    """Return what one micro-batch has live where nothing is run again, [configurations, 1]."""
    left, _ = unpacked_bytes(layer, setting)
    return _kept_bytes(layer, "none", setting) + _score_bytes(layer, setting) + left


def gradient_rows_bytes(layer: LayerWorkload, setting: Setting) -> Floats:
    """Return what backward holds of a block's own gradients at once, [configurations, 1].

    The most is where the gate meets its product: with the gradient of the block's input go those
    of the rows inside the feed-forward, whose product is freed. Tensor-parallel ranks hold the
    gradient before it is summed whole, with the whole rows that it is multiplied with. Where
    attention writes its scores it may be where they get their gradient, one more for each, and
    where queries, keys and values were gathered, where their whole gradient is joined in the order
    of ranks, beside that of the block's output.
    """
    rows, tokens = layer.activations.none, layer_tokens(layer, setting)
    beside = layer.activations.full.replicated * np.where(setting.tensor > 1.0, 2.0, 1.0)
    inside = (rows.products + rows.row_copies) / setting.tensor
    elements = np.maximum(tokens * (beside + inside), _scores(layer, setting))
    if layer.attention is not None:
        gathers = key_value_copies(layer.attention, setting) > 0.0
        whole = layer.activations.full.replicated + 2.0 * layer.attention.gathered_width
        elements = np.maximum(elements, gathers * tokens * whole)
    return np.asarray(setting.compute_bytes * elements)
