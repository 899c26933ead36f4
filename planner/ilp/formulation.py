"""Formulation: an instance as a mixed-integer program over counts of identical layers.

Sets       r ranks; j virtual stages, each held by one rank; k kinds of layers; s choices of kind k;
           l levels of transient bytes of a rank; x runs of the chain that a cut may lie in
Variables  n[r,k,s]  layers of kind k on rank r under choice s            whole, 0 to most[r,k,s]
           N[j,k]    layers of kind k on virtual stage j                  whole
           V         largest pace, times the schedule's repeats           >= 0
           U         largest end                                          >= 0
           q[r,l]    rank r has a layer of transient level l or above     0/1
           y[j,x]    the cut behind virtual stage j lies in run x         0/1
Objective  minimise  sum_r f_r + V + U,   f_r = f0_r + sum phi n

C1 placed       every layer of every kind is placed once          -> constraints.placed
C2 occupied     what a rank holds lies in its window              -> constraints.occupied
C3 pace         V >= rho t_r,   t_r = t0_r + sum tau n            -> constraints.pace
C4 end          U >= u0_r + sum u n                               -> constraints.end
C5 memory       b0_r + sum mem n + transient <= capacity          -> constraints.memory
C6 host         sum h n <= host capacity                          -> constraints.host
C7 cuts         kinds follow one another as the chain says        -> cuts.cuts
C8 cutoff       objective <= the best plan known                  -> constraints.cutoff
C9 bounds       sum_r f_r, V, U, V + U and all >= their bounds    -> constraints.bounds
C10 packings    V + U and V >= the exact best of a rank by its number of layers
                                                                  -> constraints.packings

With M[j,k] = sum_{j' <= j} N[j',k] layers of kind k before the cut behind j, and [a,b] the places
of a cut in run x, a cut in run x has C_k(a) <= M[j,k] <= C_k(b), where C_k(i) counts the layers of
kind k among the first i: equality for all kinds but the run's own. y picks the run. With one kind
of block there is nothing to order and neither N, y nor C7. Where every rank holds one virtual
stage, N[j,k] is sum_s n[r,k,s] and no variable.

Where cuts differ in what travels over them, y also carries what a cut in run x adds to the pace,
the fill and the bytes of both neighbours (C3, C5 and the objective).

most, the windows and the bounds come from `planner.ilp.reduction`, the packings from
`planner.ilp.sharpening`: they cut off no plan below the cutoff, and turn programs that take minutes
into programs that take less than a second.

Seconds are scaled so that the cutoff is 1, bytes so that the capacity is 1: coefficients stay
within about six orders of magnitude. V stands in for rho T so that the solver's tolerance on C3 is
one on the step itself, and not rho times as much.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from planner.ilp.instance import Instance
from planner.ilp.places import places_of
from planner.ilp.program import Program, Variable
from planner.ilp.reduction import Reduction


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What one unit of the program stands for."""

    seconds: float
    bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CutSegment:
    """A cut in one run of the chain: places first to last; `column` is y, None if it is certain.

    `group` is the class of the run's blocks, which says what the cut adds.
    """

    first: int
    last: int
    group: int
    column: int | None


@dataclass(slots=True, kw_only=True)
class Formulation:
    """The program of an instance with the meaning of its columns."""

    instance: Instance
    reduction: Reduction
    scale: Scale
    program: Program = field(default_factory=Program)
    layers: dict[tuple[int, int, int], int] = field(default_factory=dict)
    by_stage: list[list[tuple[int, int, int]]] = field(default_factory=list)
    held: dict[tuple[int, int], int] = field(default_factory=dict)
    segments: list[list[CutSegment]] = field(default_factory=list)
    repeated_pace: int = -1
    largest_end: int = -1


def formulate(instance: Instance, reduced: Reduction, *, scale_seconds: float) -> Formulation:
    """Return the columns and the objective of `instance`, without any rows yet."""
    scale = Scale(seconds=scale_seconds, bytes=max(float(instance.capacity_bytes.max()), 1.0))
    made = Formulation(instance=instance, reduction=reduced, scale=scale)
    _add_layers(made)
    if not instance.is_uniform:
        _add_cuts(made)
    made.repeated_pace = made.program.add(Variable(name="V"))
    made.largest_end = made.program.add(Variable(name="U"))
    _add_objective(made)
    return made


def _add_layers(made: Formulation) -> None:
    """Add n[r,k,s] where it may be above 0."""
    made.by_stage = [[] for _ in range(made.instance.stage_count)]
    for k, most in enumerate(made.reduction.most):
        for r, s in np.argwhere(most > 0).tolist():
            variable = Variable(name=f"n[{r},{k},{s}]", upper=int(most[r, s]), is_integer=True)
            made.layers[r, k, s] = made.program.add(variable)
            made.by_stage[r].append((k, s, made.layers[r, k, s]))


def _add_cuts(made: Formulation) -> None:
    """Add y[j,x] for the runs that each cut may lie in, and N[j,k] where ranks hold several j."""
    instance = made.instance
    first, last = cut_windows(made)
    for j in range(1, len(instance.holders)):
        made.segments.append(_segments(made, j, int(first[j]), int(last[j])))
    if instance.is_in_order:
        return
    for j in range(len(instance.holders)):
        for k in instance.free_kinds:
            variable = Variable(
                name=f"N[{j},{k}]", upper=float(instance.kinds[k].count), is_integer=True
            )
            made.held[j, k] = made.program.add(variable)


def cut_windows(made: Formulation) -> tuple[np.ndarray, np.ndarray]:
    """Return the earliest and latest place of every cut, [virtual stages + 1]."""
    cuts = made.reduction.windows.cuts
    if cuts is not None:
        return cuts[0], cuts[1]
    earliest, latest = places_of(made.instance)
    return earliest, latest


def _segments(made: Formulation, j: int, earliest: int, latest: int) -> list[CutSegment]:
    """Return the runs that a cut between `earliest` and `latest` may lie in.

    A cut at the end of a run belongs to it, so that every place is in one run.
    """
    found: list[tuple[int, int, int]] = []
    start = 0
    for group, count in made.instance.runs:
        first, last = max(start + 1, earliest), min(start + count, latest)
        if first <= last:
            found.append((first, last, group))
        start += count
    certain = len(found) == 1
    return [
        CutSegment(
            first=first,
            last=last,
            group=group,
            column=None
            if certain
            else made.program.add(Variable(name=f"y[{j},{first}]", upper=1.0, is_integer=True)),
        )
        for first, last, group in found
    ]


def _add_objective(made: Formulation) -> None:
    """Minimise sum phi n + V + U; the constant sum of f0 is left out."""
    instance, unit = made.instance, made.scale.seconds
    for (r, k, s), column in made.layers.items():
        made.program.objective.append((column, float(instance.kinds[k].fill[r, s]) / unit))
    if instance.extras is not None:
        for place, segments in enumerate(made.segments):
            for segment in segments:
                extra = 2.0 * float(instance.extras.fill[place, segment.group]) / unit
                if segment.column is not None and extra:
                    made.program.objective.append((segment.column, extra))
    made.program.objective.append((made.repeated_pace, 1.0))
    made.program.objective.append((made.largest_end, 1.0))


def constant_fill(made: Formulation) -> float:
    """Return the seconds of the objective that no column carries."""
    total = float(made.instance.stage_fill.sum())
    extras = made.instance.extras
    if extras is not None:
        for place, segments in enumerate(made.segments):
            if segments[0].column is None:
                total += 2.0 * float(extras.fill[place, segments[0].group])
    return total
