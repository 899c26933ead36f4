"""Formulation: an instance as a mixed-integer program over counts of identical layers.

Sets
    r   ranks of the pipeline
    j   virtual stages along the chain, from 0 on; rank r(j) holds j. Cut j lies behind stage j, and
        there is none behind the last
    k   kinds of layers. Blocks are of free kinds, and the chain is their order; the embedding and
        the head are kinds of one layer, each pinned to a rank
    s   choices of kind k
    i   places: a cut at place i has the first i blocks of the chain before it
    x   runs: the longest parts of the chain with one kind and one class, where blocks of a class
        are those behind which a cut adds the same. A place is in the run of the block before it,
        so that a cut at the end of a run belongs to that run, and every place is in one
    l   levels: w_{r,0} < w_{r,1} < ..., the different w of what rank r may hold (most > 0)

Numbers (indices [r,k,s] are left out of tau, phi, u, mem, w and h)
    symbol       meaning                                   unit             of Instance
    rho          times that the largest pace is in a step  1                repeat_count
    t0_r         pace of rank r by itself                  s a micro-batch  stage_pace
    f0_r, u0_r   its fill and drain, its end of a step     s                stage_fill, _end
    b0_r         what it holds by itself                   bytes            stage_bytes
    cap_r        capacity of the rank's device             bytes            capacity_bytes
    hcap_r       capacity of its host                      bytes            host_capacity_bytes
    r(j)         the rank that holds virtual stage j                        holders
    L_k          layers of kind k                          layers           kinds[k].count
    tau          pace of a layer                           s a micro-batch  kinds[k].pace
    phi, u       its fill and drain, its end of a step     s                .fill, .end
    mem          its bytes with the activations in flight  bytes            .memory
    w            its transient: only the largest counts    bytes            .transient
    h            its bytes on the host                     bytes            .host
    C_k(i)       layers of kind k before place i           layers           prefix_counts
    c(x)         class of run x                                             runs
    dt[j,c]      what cut j adds to each neighbour's pace  s a micro-batch  extras.pace
    df[j,c]      what it adds to each neighbour's fill     s                extras.fill
    d1, d2[j,c]  bytes it adds on r(j) and on r(j+1)       bytes            .first_, .second_bytes
What a cut adds is beyond its cheapest place, and is nothing where `extras` is None.

Of `planner.ilp.reduction`, which cuts off no plan below the cutoff Z and turns programs that take
minutes into ones that take less than a second:
    most[r,k,s]        most layers; of a pinned kind 1 at the most on its rank and 0 on all others
    lo_r, hi_r         window of rank r: its blocks, of all free kinds together
    a[j,x], b[j,x]     first and last place of run x within the window of cut j (`cut_windows`)
    S', V', U', B', Z' bounds of sum f_r, V, U, V + U and of the objective

Variables
    n[r,k,s]  layers of kind k on rank r under choice s          whole, 0 to most[r,k,s]
    V, U      rho times the largest pace; the largest end        >= 0
    q[r,l]    rank r may have a layer of level l or above        0/1, for l >= 1
    N[j,k]    layers of free kind k on virtual stage j           whole, 0 to L_k
    y[j,x]    cut j lies in run x of those in its window         0/1; 1 if x is the only one
    m[j,k,s]  layers of free kind k on virtual stage j under s   whole; with C10 only

Objective  minimise  sum_r f_r + V + U,  where
    sum_r f_r = sum_r f0_r + sum phi n + 2 sum_{j,x} df[j,c(x)] y[j,x]
    t_r = t0_r + sum_{k,s} tau n + sum_{j: r(j) = r} D_j + sum_{j: r(j+1) = r} D_j,
          D_j = sum_x dt[j,c(x)] y[j,x]
    u_r = u0_r + sum_{k,s} u n
    b_r = b0_r + sum_{k,s} mem n + sum_{j: r(j) = r} sum_x d1[j,c(x)] y[j,x]
          + sum_{j: r(j+1) = r} sum_x d2[j,c(x)] y[j,x]
    W_r = w_{r,0} + sum_{l >= 1} (w_{r,l} - w_{r,l-1}) q[r,l]

C1  placed    sum_{r,s} n[r,k,s] = L_k                                      -> constraints.placed
C2  occupied  lo_r <= sum_{free k, s} n[r,k,s] <= hi_r                      -> constraints.occupied
C3  pace      V >= rho t_r                                                  -> constraints.pace
C4  end       U >= u_r                                                      -> constraints.end
C5  memory    b_r + W_r <= cap_r,  q[r,l] <= q[r,l-1] for l >= 2,           -> constraints.memory
              n[r,k,s] <= most[r,k,s] q[r,l] where w = w_{r,l} and l >= 1
C6  host      sum_{k,s} h n[r,k,s] <= hcap_r                                -> constraints.host
C7  cuts      sum_x y[j,x] = 1,                                             -> cuts.cuts
              sum_x C_k(a[j,x]) y[j,x] <= M[j,k] <= sum_x C_k(b[j,x]) y[j,x],
              sum_{j: r(j) = r} N[j,k] = sum_s n[r,k,s],  sum_k N[j,k] >= 1
              with M[j,k] = sum_{j' <= j} N[j',k] and k free
C8  cutoff    objective <= Z                                                -> constraints.cutoff
C9  bounds    sum f_r >= S', V >= V', U >= U', V + U >= B', objective >= Z' -> constraints.bounds
C10 apart     sum_{j: r(j) = r} m[j,k,s] = n[r,k,s],  sum_s m[j,k,s] = N[j,k],   -> apart.apart
              b_r + W_r + sum_{j: r(j) = r} (H_j - g_r) K_j <= cap_r for every moment H of r
              with K_j = sum_{k,s} kept m[j,k,s], and the pinned layers of stage j

C5: such a layer forces q to be 1; w_{r,0} is needed in any case, as no rank is empty. Where ranks
hold several virtual stages C5 is a relaxation: mem has activations as if the stages of a rank held
alike. The cost model decides what fits when a plan is offered (`planner.ilp.offering`). Where it
refuses the best, a further program has C10 (`planner.ilp.reopening`): `kept` is what a layer keeps
of a micro-batch, which mem has g_r times, and H_j how many virtual stage j holds at a moment when
rank r may hold most (`planner.cost.holdings`). What time leaves open then is the gap that the
certificate says. Where a solver's tolerance lets a plan
slip past cap or hcap, `optimise` asks again with both less, by 1e-5 of them at the most.

C7: M[j,k] layers of kind k lie before cut j. Within a run C_k differs for the run's own kind alone:
for all others M is certain. Where ranks hold one virtual stage each, in their order, N[j,k] is
sum_s n[j,k,s] and no variable; the rows of its sums are C2 and not needed. In a uniform instance
(one free kind and no extras: `Instance.is_uniform`) only numbers matter: no N, y or C7.

C8: Z is the limit, what plans of the configuration must be below to matter. There is no C8 where
there is no Z.

C9 is eased: bounds by 1e-6 of themselves.

The unit of seconds is Z, or sum_k L_k max tau where there is none; that of bytes is the largest
cap_r, on hosts hcap_r: coefficients stay within about six orders of magnitude. V stands in for
rho T so that the solver's tolerance on C3 is one on the step itself, and not rho times as much. The
constants of the objective are left out of it, and taken off the right-hand sides of C8 and C9.
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
    """A cut in one run of the chain: places a to b are `first` to `last`, c(x) is `group`.

    `column` is y[j,x], None if the run is certain.
    """

    first: int
    last: int
    group: int
    column: int | None


@dataclass(slots=True, kw_only=True)
class Formulation:
    """The program of an instance with the meaning of its columns.

    `layers` are n[r,k,s], `by_stage` the same by rank as (k, s, column), `held` N[j,k]; `segments`
    the runs x of every cut j; `repeated_pace` is V and `largest_end` U.
    """

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
    """Add y[j,x] for the runs that each cut may lie in, and N[j,k] unless ranks hold one j each."""
    instance = made.instance
    first, last = cut_windows(made)
    for j in range(len(instance.holders) - 1):
        made.segments.append(_segments(made, j, int(first[j + 1]), int(last[j + 1])))
    if instance.is_in_order:
        return
    for j in range(len(instance.holders)):
        for k in instance.free_kinds:
            variable = Variable(
                name=f"N[{j},{k}]", upper=float(instance.kinds[k].count), is_integer=True
            )
            made.held[j, k] = made.program.add(variable)


def cut_windows(made: Formulation) -> tuple[np.ndarray, np.ndarray]:
    """Return the earliest and latest place of every cut, [virtual stages + 1].

    Cut j has index j + 1, behind the start of the chain; windows of the reduction come first, then
    those of the instance, else there is a block on every virtual stage.
    """
    cuts = made.reduction.windows.cuts
    if cuts is not None:
        return cuts[0], cuts[1]
    earliest, latest = places_of(made.instance)
    return earliest, latest


def _segments(made: Formulation, j: int, earliest: int, latest: int) -> list[CutSegment]:
    """Return the runs that cut j, between `earliest` and `latest`, may lie in.

    A cut at the end of a run belongs to it, so that every place is in one run.
    """
    found: list[tuple[int, int, int, int]] = []
    start = 0
    for x, (group, count) in enumerate(made.instance.runs):
        first, last = max(start + 1, earliest), min(start + count, latest)
        if first <= last:
            found.append((x, first, last, group))
        start += count
    certain = len(found) == 1
    return [
        CutSegment(
            first=first,
            last=last,
            group=group,
            column=None
            if certain
            else made.program.add(Variable(name=f"y[{j},{x}]", upper=1.0, is_integer=True)),
        )
        for x, first, last, group in found
    ]


def _add_objective(made: Formulation) -> None:
    """Minimise sum phi n + 2 sum df y + V + U; what no column carries is left out."""
    instance, unit = made.instance, made.scale.seconds
    for (r, k, s), column in made.layers.items():
        made.program.objective.append((column, float(instance.kinds[k].fill[r, s]) / unit))
    if instance.extras is not None:
        for j, segments in enumerate(made.segments):
            for segment in segments:
                extra = 2.0 * float(instance.extras.fill[j, segment.group]) / unit
                if segment.column is not None and extra:
                    made.program.objective.append((segment.column, extra))
    made.program.objective.append((made.repeated_pace, 1.0))
    made.program.objective.append((made.largest_end, 1.0))


def constant_fill(made: Formulation) -> float:
    """Return sum f0_r and 2 df of the cuts whose run is certain: what no column carries."""
    total = float(made.instance.stage_fill.sum())
    extras = made.instance.extras
    if extras is not None:
        for j, segments in enumerate(made.segments):
            if segments[0].column is None:
                total += 2.0 * float(extras.fill[j, segments[0].group])
    return total
