"""Extras: what an end of the chain adds to a plain layer, and what gradients are spared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.configuration import Floats
from planner.cost.setting import Setting
from planner.cost.states import LocalParameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Spared:
    """What has the room of the loss's buffers, which are gone by then, each [configurations, 1].

    `gradient_bytes` per parameter are spared of what a layer's late gradients take, `total_bytes`
    by all layers together; a layer whose transient is more than `transient_bytes` is not spared
    any. `step_bytes` per parameter are spared of what the optimizer's step needs.
    """

    gradient_bytes: Floats
    total_bytes: Floats
    transient_bytes: Floats
    step_bytes: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What a layer adds to a plain one, [configurations, 1]: loss buffers, a tied copy.

    `logits_bytes` are the loss's buffers at their peak, of which `logits_gradient_bytes`, those of
    the logits' gradient, are left while the head runs backward. `is_end` says that the layer is
    the embedding or the head; `spared` is None where nothing is. `stage` are the trained parameters
    of a pipeline stage in the mean, None where the layer stands alone.
    """

    is_end: bool
    logits_bytes: Floats
    logits_gradient_bytes: Floats
    copied_parameters: Floats
    spared: Spared | None = None
    stage: LocalParameters | None = None


def no_extras(
    setting: Setting,
    *,
    is_end: bool = False,
    spared: Spared | None = None,
    stage: LocalParameters | None = None,
) -> Extras:
    """Return the extras of a layer that is no head: nothing of its own."""
    zero = np.zeros_like(setting.tokens)
    return Extras(
        is_end=is_end,
        logits_bytes=zero,
        logits_gradient_bytes=zero,
        copied_parameters=zero,
        spared=spared,
        stage=stage,
    )
