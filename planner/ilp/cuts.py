"""Cuts: row C7 of `planner.ilp.formulation`, and what the place of a cut adds to its neighbours."""

from __future__ import annotations

from typing import Literal

from planner.ilp.formulation import Formulation

Terms = list[tuple[int, float]]


def cuts(made: Formulation) -> None:
    """C7: sum_x y[j,x] = 1, sum_x C_k(a[j,x]) y[j,x] <= M[j,k] <= sum_x C_k(b[j,x]) y[j,x].

    Where ranks hold several virtual stages also sum_{j of r} N[j,k] = sum_s n[r,k,s] and
    sum_k N[j,k] >= 1. Rows are named by j: cut j lies behind virtual stage j.
    """
    if made.instance.is_uniform:
        return
    if made.held:
        _shared(made)
    for j, segments in enumerate(made.segments):
        picked = [(segment.column, 1.0) for segment in segments if segment.column is not None]
        if picked:
            made.program.require(f"C7_run[cut={j}]", picked, "==", 1.0)
        for k in made.instance.free_kinds:
            _between(made, j, k)


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


def _between(made: Formulation, j: int, k: int) -> None:
    """Require sum_x C_k(a[j,x]) y[j,x] <= M[j,k] <= sum_x C_k(b[j,x]) y[j,x].

    `first` and `last` of a segment are a and b; y of a lone run is 1 and no column.
    """
    prefix = made.instance.prefix_counts
    before = _before(made, j, k)
    for bound, sense in (("first", ">="), ("last", "<=")):
        terms, constant = list(before), 0.0
        for segment in made.segments[j]:
            count = float(prefix[getattr(segment, bound), k])
            if segment.column is None:
                constant += count
            elif count:
                terms.append((segment.column, -count))
        made.program.require(
            f"C7_{bound}[cut={j},kind={k}]",
            terms,
            ">=" if sense == ">=" else "<=",
            constant,
        )


def _before(made: Formulation, j: int, k: int) -> Terms:
    """Return M[j,k]: the layers of kind k on virtual stages 0 to j."""
    if made.held:
        return [(made.held[i, k], 1.0) for i in range(j + 1)]
    return [(column, 1.0) for r in range(j + 1) for k2, _, column in made.by_stage[r] if k2 == k]


def added_by_cuts(
    made: Formulation, rank: int, part: Literal["pace", "bytes"]
) -> tuple[Terms, float]:
    """Return what the cuts at a rank's sides add: by y where the run is open, else a constant.

    sum_{j: r(j) = r} sum_x d[j,c(x)] y[j,x] and the same of r(j+1) = r, with d = dt for the pace;
    for the bytes d1 before the cut and d2 behind it.
    """
    extras = made.instance.extras
    terms: Terms = []
    constant = 0.0
    if extras is None:
        return terms, constant
    for j, segments in enumerate(made.segments):
        first, second = made.instance.holders[j], made.instance.holders[j + 1]
        sides = [(first, extras.first_bytes), (second, extras.second_bytes)]
        for holder, held in sides:
            if holder != rank:
                continue
            values = extras.pace if part == "pace" else held
            for segment in segments:
                value = float(values[j, segment.group])
                if segment.column is None:
                    constant += value
                elif value:
                    terms.append((segment.column, value))
    return terms, constant
