"""Tokens: how many each layer has on one device in one micro-batch, [configurations, 1].

A decoder's layers have the job's sequence length; a tower's have their own, and what a
cross-attention reads has the tower's. Context parallelism divides them all.
"""

from __future__ import annotations

from planner.cost.configuration import Floats
from planner.cost.setting import Setting
from planner.workload.layer import LayerWorkload, SourceWorkload


def layer_tokens(layer: LayerWorkload, setting: Setting) -> Floats:
    """Return the layer's own tokens, of a head those that it reads."""
    return layer.token_ratio * _tokens(layer.tokens_per_sequence, setting)


def source_tokens(source: SourceWorkload, setting: Setting) -> Floats:
    """Return the tokens that a layer reads of another part of the chain."""
    return _tokens(source.tokens_per_sequence, setting)


def boundary_elements(layer: LayerWorkload, setting: Setting) -> Floats:
    """Return the elements that cross a cut after the layer, whole on every tensor-parallel rank."""
    elements = layer.boundary.elements(setting.sequence_length)
    return setting.micro_batch_size * elements / setting.context


def _tokens(tokens_per_sequence: int | None, setting: Setting) -> Floats:
    if tokens_per_sequence is None:
        return setting.tokens
    return setting.micro_batch_size * tokens_per_sequence / setting.context
