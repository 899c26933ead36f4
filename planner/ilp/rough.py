"""Rough: a bound of each configuration's step from a few numbers of its prices.

With rho repeats, c_k layers of kind k, their least pace t_kd on devices of kind d, of which there
are p_d ranks, and a weight w of the fill that is one for all its parts,

    step >= rho (sum_k c_k y_k) / (sum_d p_d / t_d) + w sum_k c_k min_d t_kd

where t_d = sum_k c_k t_kd is the chain's pace on one device and y_k = min_d t_kd / t_d the least
share of it that a layer is. No rank takes longer than the largest pace T: p_d T is no less than
what devices of kind d hold takes, and that is t_d y_k for each of their layers at the least. On
devices of one kind it says that T is no less than the mean (B2 of `planner.ilp.bounds`). The fills
of all ranks together weigh every layer once; where forward and gradients weigh differently, forward
and inputs' gradients count that are the least anywhere. What ranks send is added to both. Of large
spaces this tells most of what is never looked into, at a choice for each layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

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
    more than it hides. Nor is the forward part of the pace more, or that of inputs' gradients;
    that of weights' gradients is less where recompute hides what they wait for.
    """
    order = list(ActivationCheckpointing)
    kept = order[min(order.index(choice.activation_checkpointing) for choice in choices)]
    block = Choices.of([Choice(zero_stage=1, activation_checkpointing=kept)])
    edge = Choices.of([Choice(zero_stage=1)])
    return LayerChoices(blocks=block, embedding=edge, head=edge)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoughPrices:
    """Of all layers' paces sum_k c_k min_d t_kd and sum_k c_k y_k, and by kind of device t_d.

    Beside them the first of these for forward and for inputs' gradients, `parts`; the least
    boundary between ranks, and the least that a rank pays once a step. All [..., prices].
    """

    least: Floats
    parts: Floats
    shares: Floats
    whole: Floats
    boundary: Floats
    step_end: Floats

    @staticmethod
    def of(sheets: Sequence[SpentSheet]) -> RoughPrices:
        """Return what is to be known of the layers, one sheet for each kind of device."""
        counts = np.array([*sheets[0].block_counts().tolist(), 1, 1], dtype=np.float64)
        layers = [[own.values[:3, 0] for own in sheet.layers] for sheet in sheets]
        paces, forward, weight = np.array(layers).transpose(2, 0, 1, 3)
        whole = np.tensordot(paces, counts, axes=(1, 0))
        fixed = [sheet.fixed for sheet in sheets]
        return RoughPrices(
            least=counts @ paces.min(axis=0),
            parts=np.array(
                [counts @ part.min(axis=0) for part in (forward, paces - forward - weight)]
            ),
            shares=counts @ (paces / whole[:, None]).min(axis=0),
            whole=whole,
            boundary=np.min([own.boundary_seconds.min(axis=(1, 2)) for own in fixed], axis=0),
            step_end=np.min([own.step_end_seconds for own in fixed], axis=0),
        )

    @staticmethod
    def together(parts: Sequence[RoughPrices]) -> RoughPrices:
        """Return the prices of all parts behind one another."""
        names = [field.name for field in fields(RoughPrices)]
        columns = ([getattr(part, name) for part in parts] for name in names)
        return RoughPrices(**dict(zip(names, map(_joined, columns), strict=True)))


def _joined(columns: Sequence[Floats]) -> Floats:
    return np.concatenate(columns, axis=-1)


def rough_bounds(prices: RoughPrices, ranks: Ranks) -> Floats:
    """Return a bound of every step, [rows]; the rows' prices are at `table_rows`."""
    rows = ranks.table_rows
    boundary = prices.boundary[rows]
    speed, meets = np.zeros(len(rows)), np.zeros(len(rows))
    for kind, own in enumerate(1.0 / prices.whole):
        size = np.where(ranks.devices == kind, ranks.size, 0.0)
        speed += size.sum(axis=0) * own[rows]
        meets += (size * ranks.meets).sum(axis=0) * own[rows]
    pace = (prices.shares[rows] + ranks.pace_share * boundary * meets) / speed
    return np.asarray(
        ranks.repeats * pace
        + _fill(prices, ranks)
        + ranks.fill_share * boundary * (ranks.size * ranks.meets).sum(axis=0)
        + prices.step_end[rows]
    )


def _fill(prices: RoughPrices, ranks: Ranks) -> Floats:
    """Return the fills of all ranks together at the least, [rows].

    Of forms that weigh their parts differently those count that take nothing off, and in these
    forward and inputs' gradients: weights' are less where other choices hide them.
    """
    fill = ranks.forms[0, 0] * prices.least[ranks.table_rows]
    rows = np.flatnonzero(~weighs_alike(ranks))
    forms = ranks.forms.take(rows, axis=2)
    parts = prices.parts.take(ranks.table_rows[rows], axis=1)
    known = (forms[:, :2] * parts).sum(axis=1)
    fill[rows] = np.where((forms >= 0.0).all(axis=1), known, 0.0).max(axis=0)
    return np.asarray(fill)
