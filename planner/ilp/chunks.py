"""Chunks: which loads ranks can have one after another where each holds several parts of the chain.

Virtual stages come in turns (0 1 2 0 1 2) or in a V (0 1 2 2 1 0). Sums of loads leave aside where
the parts lie: ranks could take the heavy layers of one kind only, though kinds alternate. Here a
state is what the first ranks hold together and where their parts end, the latter as a class: two
places of one class are followed by the same kinds of layers, and so are interchangeable once it is
known how many layers are left. A chain of period P after o odd blocks has o + P classes.

In turns, the class that each part but the first begins in is guessed at the first rank; a guess
holds if the part before it ends in that class. Lengths add up to the chain's, so that what is put
together is a way to cut it. In a V the second part is read backwards from the chain's end, and the
last rank takes what is left.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.ilp.instance import Instance
from planner.ilp.levels import Windows
from planner.ilp.loads import Load
from planner.ilp.moves import Moves
from planner.ilp.patterns import TooManyError
from planner.ilp.places import places_of
from planner.ilp.walk import Excess, walk_of


def moves_by_chunks(
    instance: Instance, windows: Windows, loads: Sequence[Sequence[Load]]
) -> list[Moves] | None:
    """Return every rank's moves between states; None where that is too much, or in no known order.

    The first state is 0, and so is the last rank's.
    """
    walk = walk_of(instance, windows, loads)
    found = None if walk is None else walk.moves()
    return None if found is None else [moves for moves, _ in found]


def edged_moves_by_chunks(
    instance: Instance, windows: Windows, loads: Sequence[Sequence[Load]]
) -> tuple[list[Moves], list[list[Load]]] | None:
    """Return the same where cuts differ by place, and the loads with their edges."""
    walk = walk_of(instance, windows, loads)
    found = None if walk is None else walk.moves()
    if walk is None or found is None:
        return None
    edged = [
        [(*own[load], *edges) for load, edges in walk.codes.split(keys)]
        for own, (_, keys) in zip(loads, found, strict=True)
    ]
    return [moves for moves, _ in found], edged


def cuts_by_chunks(
    instance: Instance, windows: Windows, loads: Sequence[Load], *, excess: Excess | None = None
) -> tuple[int, ...] | None:
    """Return cuts after which every rank holds its one load; None where there are none.

    Where cuts differ by place, loads may come with their edges. With `excess`, cuts are those at
    which the largest of the ranks' is least.

    Raises:
        TooManyError: if there are too many ways to look at, or ranks are in no known order, or the
            way that was found has cuts where there may be none.
    """
    free = len(instance.free_kinds)
    walk = walk_of(instance, windows, [[load[:free]] for load in loads])
    if walk is None:
        raise TooManyError
    known = [load[free:] for load in loads]
    lengths = walk.lengths(known if all(known) else None, excess)
    if lengths is None:
        return None
    parts = [lengths[:, 0], lengths[::-1, 1]] if walk.is_folded else list(lengths.T)
    cuts = np.concatenate([[0], np.cumsum(np.concatenate(parts))])
    earliest, latest = places_of(instance)
    if not ((cuts >= earliest) & (cuts <= latest)).all():
        raise TooManyError
    return tuple(cuts.tolist())
