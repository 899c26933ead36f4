"""Shelf: the choices that layers of a rank may take beside those that it is filled up with.

Sets of such choices are labels (`planner.ilp.labels`), rows of numbers: the reduced cost, the cost,
the memory filled up with the bases and with the lighter ones, the layers of each kind that is used,
and what is taken of every limit that binds, filled up with the bases and with the least.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from planner.cost.configuration import Floats, Integers

_WHOLE = 1e-9


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """The choices that labels are made of and what they are filled up with.

    `kinds`, `cost`, `memory` and `reduced` are [columns], `taken` [limits, columns] what a layer
    takes of the `limits` [limits] beside the memory, `held` [kinds] the layers. `bases` [kinds] are
    columns; the one of the kind `filler` can be changed for `light`, which saves memory. Labels
    have a layer of a `needed` [needed columns] one, of which none is a base, if there are any.
    """

    kinds: Integers
    cost: Floats
    memory: Floats
    taken: Floats
    limits: Floats
    reduced: Floats
    held: Integers
    room: float
    price: float
    bases: Integers
    filler: int
    light: int
    needed: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @cached_property
    def used(self) -> Integers:
        """Return the kinds that have layers, [used kinds]."""
        return np.flatnonzero(self.held)

    @cached_property
    def place_of(self) -> dict[int, int]:
        """Return the places of the kinds among those that are used."""
        return {kind: place for place, kind in enumerate(self.used.tolist())}

    @cached_property
    def own_base(self) -> Integers:
        """Return the base of every column's kind, [columns]."""
        return self.bases[self.kinds]

    @cached_property
    def lightest(self) -> Floats:
        """Return the least that a layer of each kind takes, [limits, kinds]; 0 of absent kinds."""
        least = np.full((len(self.held), len(self.limits)), np.inf)
        np.minimum.at(least, self.kinds, self.taken.T)
        return np.where(np.isfinite(least), least, 0.0).T

    @cached_property
    def lighter(self) -> Floats:
        """Return the memory of a layer of the lighter base of each kind, [kinds]."""
        lighter = self.memory[self.bases].copy()
        lighter[self.filler] = self.memory[self.light]
        return lighter

    def start(self, binding: Integers) -> Floats:
        """Return the label of no other layers at all, [1, numbers]."""
        held = self.held[self.used].astype(np.float64)
        bases = self.bases[self.used]
        first = [0.0, held @ self.cost[bases], held @ self.memory[bases]]
        first += [held @ self.lighter[self.used], *np.zeros(len(self.used))]
        filled = self.taken[binding][:, bases] @ held
        least = self.lightest[binding][:, self.used] @ held
        return np.concatenate([first, filled, least])[None, :]

    def added(self, binding: Integers) -> Floats:
        """Return what a layer of each choice adds to the numbers of a label, [columns, numbers]."""
        taken, base = self.taken[binding], self.own_base
        one_hot = self.kinds[:, None] == self.used[None, :]
        fixed = [self.reduced, self.cost - self.cost[base], self.memory - self.memory[base]]
        fixed.append(self.memory - self.lighter[self.kinds])
        filled = taken - taken[:, base]
        least = taken - self.lightest[binding][:, self.kinds]
        return np.concatenate([np.stack(fixed), one_hot.T, filled, least]).T

    def binding(self, order: Integers, gap: float) -> Integers:
        """Return the limits that labels of some columns within the gap might exceed."""
        held = self.held[self.used].astype(np.float64)
        bases = self.taken[:, self.bases[self.used]].copy()
        swapped = self.place_of[self.filler]
        bases[:, swapped] = np.maximum(bases[:, swapped], self.taken[:, self.light])
        if not len(order):
            return np.flatnonzero(bases @ held > self.limits)
        more = np.maximum(self.taken[:, order] - self.taken[:, self.own_base[order]], 0.0)
        rate = np.full(more.shape, np.inf)
        np.divide(more, self.reduced[order], out=rate, where=self.reduced[order] > 0.0)
        by_gap = np.where(more > 0.0, rate, 0.0).max(axis=1) * gap
        by_kind = np.zeros(len(self.limits))
        for kind, number in zip(self.used.tolist(), held.tolist(), strict=True):
            own = self.kinds[order] == kind
            by_kind += number * more[:, own].max(axis=1, initial=0.0)
        most = bases @ held + np.minimum(by_kind, by_gap) * (1.0 + _WHOLE)
        return np.flatnonzero(most > self.limits)
