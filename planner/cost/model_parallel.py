"""Model-parallel communication of one layer and micro-batch: tensor, context, expert."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from planner.cost.collectives import all_gather_seconds, all_reduce_seconds, all_to_all_seconds
from planner.cost.configuration import Floats
from planner.cost.setting import Setting
from planner.workload.layer import LayerWorkload

Role = Literal["embedding", "block", "head"]

_HIDDEN_ROUNDS = {  # collectives of [tokens, hidden] in forward and in backward
    "embedding": (1.0, 1.0),
    "block": (2.0, 2.0),
    "head": (1.0, 1.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelParallelSeconds:
    """Exposed seconds of one layer and micro-batch; arrays [configurations, 1].

    `tensor_recompute_full` and `_selective` are what running forward again adds.
    """

    tensor_forward: Floats
    tensor_backward: Floats
    tensor_recompute_full: Floats
    tensor_recompute_selective: Floats
    context_forward: Floats
    context_backward: Floats
    expert_forward: Floats
    expert_backward: Floats


def model_parallel_seconds(
    layer: LayerWorkload, role: Role, setting: Setting, attention_seconds: Floats
) -> ModelParallelSeconds:
    """Return the layer's communication; context-parallel exchange hides under attention."""
    one_round = _tensor_round_seconds(layer, setting)
    forward_rounds, backward_rounds = _HIDDEN_ROUNDS[role]
    context = _context_seconds(layer, setting)
    hidden = setting.overlap.hidden_ratio
    expert = _expert_seconds(layer, setting)
    gathers_again = np.where(setting.sequence_parallel, 0.5, 0.0)
    return ModelParallelSeconds(
        tensor_forward=forward_rounds * one_round,
        tensor_backward=backward_rounds * one_round,
        tensor_recompute_full=forward_rounds * one_round,
        tensor_recompute_selective=forward_rounds * one_round * gathers_again,
        context_forward=np.maximum(context - hidden * attention_seconds, 0.0),
        context_backward=np.maximum(2.0 * context - 2.0 * hidden * attention_seconds, 0.0),
        expert_forward=expert,
        expert_backward=expert,
    )


def _tensor_round_seconds(layer: LayerWorkload, setting: Setting) -> Floats:
    """Return the exposed seconds of one all_reduce of [tokens, hidden].

    Under sequence parallel an all_gather and a reduce_scatter take its place.
    """
    message = setting.tokens * layer.hidden_size * setting.compute_bytes
    levels = setting.hardware.levels
    reduce = all_reduce_seconds(message, rank_count=setting.tensor, stride=1.0, levels=levels)
    gather = all_gather_seconds(message, rank_count=setting.tensor, stride=1.0, levels=levels)
    seconds = np.where(setting.sequence_parallel, 2.0 * gather, reduce)
    return seconds * (1.0 - setting.stack.tensor_parallel_overlap_ratio)


def _context_seconds(layer: LayerWorkload, setting: Setting) -> Floats:
    """Return seconds to pass keys and values round the ring once: an all_gather of them."""
    if layer.attention is None:
        return np.zeros_like(setting.tokens)
    width = layer.attention.key_value_width / setting.tensor
    message = setting.tokens * setting.context * width * setting.compute_bytes
    return all_gather_seconds(
        message, rank_count=setting.context, stride=setting.tensor, levels=setting.hardware.levels
    )


def _expert_seconds(layer: LayerWorkload, setting: Setting) -> Floats:
    """Return seconds of dispatch and combine: each sends every token to its chosen experts."""
    if not layer.experts_per_token:
        return np.zeros_like(setting.tokens)
    message = setting.tokens * layer.experts_per_token * layer.hidden_size * setting.compute_bytes
    once = all_to_all_seconds(
        message, rank_count=setting.expert, stride=setting.tensor, levels=setting.hardware.levels
    )
    return 2.0 * once
