"""Cuts: row C7 of `planner.ilp.formulation`, and what the place of a cut adds to its neighbours."""

from __future__ import annotations

from typing import Literal

from planner.ilp.formulation import Formulation

Terms = list[tuple[int, float]]


def cuts(made: Formulation) -> None:
    """C7: sum_x y[j,x] = 1, and C_k(a_x) <= M[j,k] <= C_k(b_x) for the run x that y picks."""
    if made.instance.is_uniform:
        return
    if made.held:
        _shared(made)
    for place, segments in enumerate(made.segments):
        picked = [(segment.column, 1.0) for segment in segments if segment.column is not None]
        if picked:
            made.program.require(f"C7_run[cut={place}]", picked, "==", 1.0)
        for k in made.instance.free_kinds:
            _between(made, place, k)


def _shared(made: Formulation) -> None:
    """Require sum_{j of r} N[j,k] = sum_s n[r,k,s], and a layer on every virtual stage."""
    instance = made.instance
    for r in range(instance.stage_count):
        for k in instance.free_kinds:
            terms = [
                (made.held[j, k], 1.0) for j, holder in enumerate(instance.holders) if holder == r
            ]
            terms += [(column, -1.0) for k2, _, column in made.by_stage[r] if k2 == k]
            made.program.require(f"C7_shared[rank={r},kind={k}]", terms, "==", 0.0)
    for j in range(len(instance.holders)):
        terms = [(made.held[j, k], 1.0) for k in instance.free_kinds]
        made.program.require(f"C7_occupied[stage={j}]", terms, ">=", 1.0)


def _between(made: Formulation, place: int, k: int) -> None:
    """Require C_k(a_x) <= M <= C_k(b_x) of kind k before the cut, summed over the runs by y."""
    prefix = made.instance.prefix_counts
    before = _before(made, place, k)
    for bound, sense in (("first", ">="), ("last", "<=")):
        terms, constant = list(before), 0.0
        for segment in made.segments[place]:
            count = float(prefix[getattr(segment, bound), k])
            if segment.column is None:
                constant += count
            elif count:
                terms.append((segment.column, -count))
        made.program.require(
            f"C7_{bound}[cut={place},kind={k}]",
            terms,
            ">=" if sense == ">=" else "<=",
            constant,
        )


def _before(made: Formulation, place: int, k: int) -> Terms:
    """Return M[j,k]: the layers of kind k on virtual stages 0 to `place`."""
    if made.held:
        return [(made.held[j, k], 1.0) for j in range(place + 1)]
    return [
        (column, 1.0) for r in range(place + 1) for k2, _, column in made.by_stage[r] if k2 == k
    ]


def added_by_cuts(
    made: Formulation, rank: int, part: Literal["pace", "bytes"]
) -> tuple[Terms, float]:
    """Return what the cuts at a rank's sides add: by y where the run is open, else a constant."""
    extras = made.instance.extras
    terms: Terms = []
    constant = 0.0
    if extras is None:
        return terms, constant
    for place, segments in enumerate(made.segments):
        first, second = made.instance.holders[place], made.instance.holders[place + 1]
        sides = [(first, extras.first_bytes), (second, extras.second_bytes)]
        for holder, held in sides:
            if holder != rank:
                continue
            values = extras.pace if part == "pace" else held
            for segment in segments:
                value = float(values[place, segment.group])
                if segment.column is None:
                    constant += value
                elif value:
                    terms.append((segment.column, value))
    return terms, constant
