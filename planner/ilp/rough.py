"""Rough: a bound of each configuration's step from a single number of its prices.

With rho repeats on p ranks, and a weight w of the fill that is one for all its parts,

    step >= (rho / p + w) · sum of the least paces of all layers

since the largest pace is no less than the mean (B2 of `planner.ilp.bounds`), and the fills of all
ranks together weigh every layer once. Where the parts of a fill weigh differently it is taken as 0.
Of large spaces this tells most of what is never looked into, at a choice for each layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.cost.configuration import Choice, Choices, Floats, LayerChoices
from planner.ilp.columns import weighs_alike
from planner.ilp.grouping import Ranks
from planner.ilp.sheet import SpentSheet
from planner.schema.strategy import ActivationCheckpointing


def rough_choices(choices: Sequence[Choice]) -> LayerChoices:
    """Return the choice under which no layer's pace is more than under any of `choices`.

    It is ZeRO-1 with the least checkpointing of them, whether that is among them or not: stage 0
    may cast weights, stages 2 and 3 reduce or gather with every micro-batch, and recompute adds
    more than it hides.
    """
    order = list(ActivationCheckpointing)
    kept = order[min(order.index(choice.activation_checkpointing) for choice in choices)]
    block = Choices.of([Choice(zero_stage=1, activation_checkpointing=kept)])
    edge = Choices.of([Choice(zero_stage=1)])
    return LayerChoices(blocks=block, embedding=edge, head=edge)


def rough_seconds(sheets: Sequence[SpentSheet]) -> Floats:
    """Return the least paces of all layers together, on whatever kind of device, [prices]."""
    layers = zip(*(sheet.layers for sheet in sheets), strict=True)
    least = [np.min([own.pace[0] for own in each], axis=0) for each in layers]
    counts = [*sheets[0].block_counts().tolist(), 1, 1]
    return np.asarray(sum(count * own for count, own in zip(counts, least, strict=True)))


def rough_shares(ranks: Ranks) -> Floats:
    """Return what the step is at the least as a share of the paces of all layers, [rows]."""
    weight = np.where(weighs_alike(ranks), ranks.forms[0, 0], 0.0)
    return np.asarray(ranks.repeats / ranks.size.sum(axis=0) + weight)
