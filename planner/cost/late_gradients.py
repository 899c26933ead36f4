"""Late gradients: those of a single micro-batch, which only come once the loss's buffers are gone.

On a rank without pipeline neighbours memory peaks at the loss or afterwards, with a_l what a layer
keeps, g_l its gradients, w_l what it needs while it runs, and w_h, of the head, at least the loss's
buffers:

    at the loss    sum_l a_l + w_h
    afterwards     sum_l max(a_l, g_l) + max_l w_l

Sums and one maximum are what the search can bound, and the larger of these two is neither. With d_l
of each layer, in proportion to its parameters, that add up to no more than w_h - max_l w_l,

    sum_l (a_l + max(0, g_l - a_l - d_l)) + max(w_h, max_l w_l)

is no less than both, and equal to the larger where blocks are alike and all choose alike.

What the optimizer's step needs beside its states finds the room of the loss's buffers as well, and
that of the activations: with s_l of each layer it is the excess over a_l and its share of w_h.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.cost.configuration import Choice, Choices, Floats
from planner.cost.layers import Extras, Spared, layer_bytes, local_states, no_extras
from planner.cost.setting import Setting
from planner.schema.strategy import ActivationCheckpointing
from planner.workload.layer import LayerWorkload

_NEEDIEST = Choices.of(
    [Choice(zero_stage=3, activation_checkpointing=ActivationCheckpointing.FULL)]
)
"""The choice that needs the most room while a layer runs, but for offloaded activations."""


def spared_gradients(
    embedding: LayerWorkload,
    blocks: Sequence[tuple[LayerWorkload, int]],
    head: LayerWorkload,
    *,
    extras: Extras,
    setting: Setting,
) -> Spared | None:
    """Return what gradients are spared, None where no configuration has any that come late.

    `blocks` are kinds of blocks with how many there are, `extras` those of the head.
    """
    alone = setting.pipeline == 1.0
    late = (setting.micro_batch_count == 1.0) & alone & (not setting.stack.gradient_buffers)
    if not (late.any() or setting.step_bytes):
        return None
    end = no_extras(setting, is_end=True)
    needs = [_transient(layer, no_extras(setting), setting) for layer, _ in blocks]
    needs.append(_transient(embedding, end, setting))
    needs.append(_transient(head, end, setting))
    most = np.max(needs, axis=0)
    total = np.where(late, np.maximum(extras.logits_bytes - most, 0.0), 0.0)
    layers = [(embedding, 1), *blocks, (head, 1)]
    parameters = np.asarray(
        sum(count * local_states(layer, setting, end).trained().total() for layer, count in layers)
    )
    room = np.where(alone, extras.logits_bytes, 0.0)
    some = parameters > 0.0
    return Spared(
        gradient_bytes=np.divide(total, parameters, out=np.zeros_like(total), where=some),
        total_bytes=total,
        transient_bytes=most,
        step_bytes=np.divide(room, parameters, out=np.zeros_like(room), where=some),
    )


def _transient(layer: LayerWorkload, extras: Extras, setting: Setting) -> Floats:
    """Return what a layer needs while it runs, as the neediest, [configurations, 1]."""
    return layer_bytes(layer, choices=_NEEDIEST, setting=setting, extras=extras).transient
