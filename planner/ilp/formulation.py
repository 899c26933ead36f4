"""Formulation: one configuration as a mixed-integer program over counts of identical layers.

It is plain data (`Program`), known to no solver. There is no relaxation of our own: HiGHS has it.

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

Of `planner.ilp.lagrangian_bound`, which cuts off no plan below the cutoff Z and turns programs that
take minutes into ones that take less than a second:
    most[r,k,s]        most layers; of a pinned kind 1 at the most on its rank and 0 on all others
    lo_r, hi_r         window of rank r: its blocks, of all free kinds together
    a[j,x], b[j,x]     first and last place of run x within the window of cut j (`Windows`)
    S', V', U', B', Z' bounds of sum f_r, V, U, V + U and of the objective

Variables
    n[r,k,s]  layers of kind k on rank r under choice s          whole, 0 to most[r,k,s]
    V, U      rho times the largest pace; the largest end        >= 0
    q[r,l]    rank r may have a layer of level l or above        0/1, for l >= 1
    N[j,k]    layers of free kind k on virtual stage j           whole, 0 to L_k
    y[j,x]    cut j lies in run x of those in its window         0/1; 1 if x is the only one
    m[j,k,s]  layers of free kind k on virtual stage j under s   whole; with C9 only

Objective  minimise  sum_r f_r + V + U,  where
    sum_r f_r = sum_r f0_r + sum phi n + 2 sum_{j,x} df[j,c(x)] y[j,x]
    t_r = t0_r + sum_{k,s} tau n + sum_{j: r(j) = r} D_j + sum_{j: r(j+1) = r} D_j,
          D_j = sum_x dt[j,c(x)] y[j,x]
    u_r = u0_r + sum_{k,s} u n
    b_r = b0_r + sum_{k,s} mem n + sum_{j: r(j) = r} sum_x d1[j,c(x)] y[j,x]
          + sum_{j: r(j+1) = r} sum_x d2[j,c(x)] y[j,x]
    W_r = w_{r,0} + sum_{l >= 1} (w_{r,l} - w_{r,l-1}) q[r,l]

C1  placed    sum_{r,s} n[r,k,s] = L_k                                      -> placed
C2  occupied  lo_r <= sum_{free k, s} n[r,k,s] <= hi_r                      -> occupied
C3  pace      V >= rho t_r                                                  -> pace
C4  end       U >= u_r                                                      -> end
C5  memory    b_r + W_r <= cap_r,  q[r,l] <= q[r,l-1] for l >= 2,           -> memory
              n[r,k,s] <= most[r,k,s] q[r,l] where w = w_{r,l} and l >= 1
C6  host      sum_{k,s} h n[r,k,s] <= hcap_r                                -> host
C7  cuts      sum_x y[j,x] = 1,                                             -> cuts
              sum_x C_k(a[j,x]) y[j,x] <= M[j,k] <= sum_x C_k(b[j,x]) y[j,x],
              sum_{j: r(j) = r} N[j,k] = sum_s n[r,k,s],  sum_k N[j,k] >= 1
              with M[j,k] = sum_{j' <= j} N[j',k] and k free
C8  bounds    sum f_r >= S', V >= V', U >= U', V + U >= B', objective >= Z' -> bounds
C9  apart     sum_{j: r(j) = r} m[j,k,s] = n[r,k,s],  sum_s m[j,k,s] = N[j,k],    -> apart
              b_r + W_r + sum_{j: r(j) = r} (H_j - g_r) K_j <= cap_r for every moment H of r
              with K_j = sum_{k,s} kept m[j,k,s], and the pinned layers of stage j

C5: such a layer forces q to be 1; w_{r,0} is needed in any case, as no rank is empty. Where ranks
hold several virtual stages C5 is a relaxation: mem has activations as if the stages of a rank held
alike. The cost model decides what fits when a plan is offered (`planner.ilp.incumbent`). Where it
refuses the best, a further program has C9 (`planner.ilp.search`): `kept` is what a layer keeps of
a micro-batch, which mem has g_r times, and H_j how many virtual stage j holds at a moment when rank
r may hold most (`planner.cost.schedule`); H_j - g_r may be negative. What time leaves open then is
the gap that the certificate says. Where a solver's tolerance lets a plan slip past cap or hcap,
`optimise` asks again with both less, by 1e-5 of them at the most.

C7: M[j,k] layers of kind k lie before cut j. Within a run C_k differs for the run's own kind alone:
for all others M is certain. Where ranks hold one virtual stage each, in their order, N[j,k] is
sum_s n[j,k,s] and no variable; the rows of its sums are C2 and not needed. In a uniform instance
(one free kind and no extras: `Instance.is_uniform`) only numbers matter: no N, y or C7.

C8 is eased: bounds by 1e-6 of themselves.

Z is the limit, what plans of the configuration must be below to matter. There is no row of it: the
solver is stopped once its bound is above Z, which proves that no plan is below, while a program
that has no solution for such a row tells nothing and has to be confirmed (`planner.ilp.milp`).

The unit of seconds is Z, or sum_k L_k max tau where there is none; that of bytes is the largest
cap_r, on hosts hcap_r: coefficients stay within about six orders of magnitude. V stands in for
rho T so that the solver's tolerance on C3 is one on the step itself, and not rho times as much. The
constants of the objective are left out of it, and taken off the right-hand sides of C8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np

from planner.cost.configuration import Configuration
from planner.cost.schedule import Holding, in_flight, peak_holdings
from planner.ilp.instance import Instance, everywhere
from planner.ilp.lagrangian_bound import Reduction
from planner.ilp.settings import SOLVER_ROW_TOLERANCE

Sense = Literal["<=", ">=", "=="]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A column: its name, bounds (None = unbounded above), and whether it is whole."""

    name: str
    lower: float = 0.0
    upper: float | None = None
    is_integer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A constraint: sum of coefficient x variable, by the variable's index, against a number."""

    name: str
    terms: tuple[tuple[int, float], ...]
    sense: Sense
    bound: float


@dataclass(slots=True)
class Program:
    """Minimise the objective over the variables subject to the rows, which have names."""

    variables: list[Variable] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    objective: list[tuple[int, float]] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)

    def add(self, variable: Variable) -> int:
        """Return the index of `variable`, now part of the program."""
        self.variables.append(variable)
        return len(self.variables) - 1

    def value(self, values: Sequence[float]) -> float:
        """Return what values come to."""
        return sum(cost * values[column] for column, cost in self.objective)

    def violation(self, values: Sequence[float]) -> float:
        """Return by how much values miss the row that they miss by most, as a share of its size."""
        return max((_missed(row, values) for row in self.rows), default=0.0)

    def require(
        self, name: str, terms: list[tuple[int, float]], sense: Sense, bound: float
    ) -> None:
        """Add a row; `places` says where it is."""
        self.places[name] = len(self.rows)
        self.rows.append(Row(name=name, terms=tuple(terms), sense=sense, bound=bound))

    def eased(self) -> Program:
        """Return the program of how far rows must be eased at the least for values to keep them.

            minimise e >= 0   subject to   a x - e max(|b|, 1) <= b   for every row a x <= b

        Rows of other senses are eased likewise, equalities to both sides. The last column is e. It
        has a solution whatever the rows ask for, and 0 is the least where the program has one.
        """
        eased = Program(variables=list(self.variables))
        slack = eased.add(Variable(name="e"))
        eased.objective = [(slack, 1.0)]
        for row in self.rows:
            share = max(abs(row.bound), 1.0)
            if row.sense != ">=":
                eased.require(row.name, [*row.terms, (slack, -share)], "<=", row.bound)
            if row.sense != "<=":
                eased.require(f"{row.name}>=", [*row.terms, (slack, share)], ">=", row.bound)
        return eased

    def loosened(self, share: float) -> Program:
        """Return the program with every row eased by a share of max(|b|, 1)."""
        loose = Program(variables=self.variables, objective=self.objective)
        for row in self.rows:
            room = share * max(abs(row.bound), 1.0)
            terms = list(row.terms)
            if row.sense != ">=":
                loose.require(row.name, terms, "<=", row.bound + room)
            if row.sense != "<=":
                loose.require(f"{row.name}>=", terms, ">=", row.bound - room)
        return loose


def _missed(row: Row, values: Sequence[float]) -> float:
    terms = [coefficient * values[column] for column, coefficient in row.terms]
    over = sum(terms) - row.bound
    missed = {"<=": over, ">=": -over, "==": abs(over)}[row.sense]
    return missed / max(abs(row.bound), *map(abs, terms), 1.0)


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
    cuts = made.reduction.windows.cuts
    first, last = everywhere(instance) if cuts is None else cuts
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


def constrain(made: Formulation) -> None:
    """Add C1 to C8."""
    placed(made)
    occupied(made)
    pace(made)
    end(made)
    memory(made)
    host(made)
    cuts(made)
    bounds(made)


def placed(made: Formulation) -> None:
    """C1: sum_{r,s} n[r,k,s] = L_k."""
    by_kind: dict[int, Terms] = {k: [] for k in range(len(made.instance.kinds))}
    for (_, k, _), column in made.layers.items():
        by_kind[k].append((column, 1.0))
    for k, terms in by_kind.items():
        made.program.require(f"C1_placed[kind={k}]", terms, "==", made.instance.kinds[k].count)


def occupied(made: Formulation) -> None:
    """C2: lo_r <= sum over free kinds of n[r,k,s] <= hi_r, the windows of the reduction."""
    free = set(made.instance.free_kinds)
    windows = made.reduction.windows
    for r, columns in enumerate(made.by_stage):
        terms = [(column, 1.0) for k, _, column in columns if k in free]
        made.program.require(f"C2_least[rank={r}]", terms, ">=", float(windows.least[r]))
        made.program.require(f"C2_most[rank={r}]", terms, "<=", float(windows.most[r]))


def pace(made: Formulation) -> None:
    """C3: V >= rho t_r, that is V - rho (sum tau n + what cuts add) >= rho t0_r."""
    instance, unit = made.instance, made.scale.seconds
    repeats = instance.repeat_count
    for r, columns in enumerate(made.by_stage):
        terms: Terms = [(made.repeated_pace, 1.0)]
        for k, s, column in columns:
            terms.append((column, -repeats * float(instance.kinds[k].pace[r, s]) / unit))
        added, constant = added_by_cuts(made, r, "pace")
        terms.extend((column, -repeats * value / unit) for column, value in added)
        bound = repeats * (float(instance.stage_pace[r]) + constant) / unit
        made.program.require(f"C3_pace[rank={r}]", terms, ">=", bound)


def end(made: Formulation) -> None:
    """C4: U >= u_r, that is U - sum u n >= u0_r."""
    instance, unit = made.instance, made.scale.seconds
    for r, columns in enumerate(made.by_stage):
        terms: Terms = [(made.largest_end, 1.0)]
        for k, s, column in columns:
            terms.append((column, -float(instance.kinds[k].end[r, s]) / unit))
        bound = float(instance.stage_end[r]) / unit
        made.program.require(f"C4_end[rank={r}]", terms, ">=", bound)


def memory(made: Formulation) -> None:
    """C5: b_r + W_r <= cap_r.

        sum mem n + what cuts add + sum_{l >= 1} (w_l - w_{l-1}) q[r,l] <= cap_r - b0_r - w_0

    q[r,l] is forced to 1 by n[r,k,s] <= most q[r,l] for every choice of level l, and
    q[r,l] <= q[r,l-1]; the largest transient then counts once. most[r,k,s], the bound of the
    variable itself, is the tightest big-M. With virtual stages it is a relaxation, as mem counts
    activations as if a rank's stages held alike.
    """
    for r in range(made.instance.stage_count):
        _memory_of(made, r)


def _memory_of(made: Formulation, r: int) -> None:
    instance, unit = made.instance, made.scale.bytes
    columns = made.by_stage[r]
    transient = {(k, s): float(instance.kinds[k].transient[r, s]) for k, s, _ in columns}
    terms: Terms = [(c, float(instance.kinds[k].memory[r, s]) / unit) for k, s, c in columns]
    levels = sorted(set(transient.values()))
    switches = _add_switches(made, r, levels)
    for (below, level), switch in zip(pairwise(levels), switches, strict=True):
        terms.append((switch, (level - below) / unit))
    for k, s, column in columns:
        place = levels.index(transient[k, s])
        if place > 0:
            big = float(made.reduction.most[k][r, s])
            made.program.require(
                f"C5_level[rank={r},kind={k},choice={s}]",
                [(column, 1.0), (switches[place - 1], -big)],
                "<=",
                0.0,
            )
    added, constant = added_by_cuts(made, r, "bytes")
    terms.extend((column, value / unit) for column, value in added)
    left = instance.capacity_bytes[r] - float(instance.stage_bytes[r]) - levels[0] - constant
    made.program.require(f"C5_memory[rank={r}]", terms, "<=", left / unit)


def _add_switches(made: Formulation, r: int, levels: list[float]) -> list[int]:
    """Add q[r,l] for every level above the least, each at most the one below."""
    switches: list[int] = []
    for place in range(1, len(levels)):
        variable = Variable(name=f"q[{r},{place}]", upper=1.0, is_integer=True)
        switches.append(made.program.add(variable))
        if place > 1:
            made.program.require(
                f"C5_order[rank={r},level={place}]",
                [(switches[-1], 1.0), (switches[-2], -1.0)],
                "<=",
                0.0,
            )
    return switches


def host(made: Formulation) -> None:
    """C6: sum h n <= hcap_r, where any choice uses the host."""
    instance = made.instance
    for r, columns in enumerate(made.by_stage):
        capacity = float(instance.host_capacity_bytes[r])
        unit = max(capacity, 1.0)
        terms = [
            (column, float(instance.kinds[k].host[r, s]) / unit)
            for k, s, column in columns
            if instance.kinds[k].host[r, s] > 0.0
        ]
        if terms:
            made.program.require(f"C6_host[rank={r}]", terms, "<=", capacity / unit)


def bounds(made: Formulation) -> None:
    """C8: sum f_r >= S', V >= V', U >= U', V + U >= B', objective >= Z'.

    The bounds are eased by 1e-6 of themselves, more than the solver's tolerance: rows that hold
    with equality up to rounding have made HiGHS call feasible programs infeasible.
    """
    unit = made.scale.seconds / (1.0 - SOLVER_ROW_TOLERANCE)
    least = made.reduction.bounds
    ends = {made.repeated_pace, made.largest_end}
    fills = [term for term in made.program.objective if term[0] not in ends]
    fill_sum = least.fill_sum * (1.0 - SOLVER_ROW_TOLERANCE) - constant_fill(made)
    slowest, largest = (made.repeated_pace, 1.0), (made.largest_end, 1.0)
    made.program.require("C8_fill", fills, ">=", fill_sum / made.scale.seconds)
    made.program.require("C8_pace", [slowest], ">=", least.repeated_pace / unit)
    made.program.require("C8_end", [largest], ">=", least.largest_end / unit)
    made.program.require("C8_both", [slowest, largest], ">=", least.omega / unit)
    total = least.total * (1.0 - SOLVER_ROW_TOLERANCE) - constant_fill(made)
    made.program.require("C8_total", list(made.program.objective), ">=", total / made.scale.seconds)


_Columns = dict[tuple[int, int, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """What the virtual stages of each rank hold when they hold most, and what all hold alike."""

    held: Sequence[Sequence[Holding]]
    alike: Sequence[float]

    @staticmethod
    def of(configuration: Configuration) -> Moments:
        """Return the moments of a configuration's ranks, in its micro-batches."""
        shape = {
            "pipeline_parallel_degree": configuration.pipeline_parallel_degree,
            "virtual_pipeline_degree": configuration.virtual_pipeline_degree,
            "micro_batch_count": configuration.micro_batch_count,
        }
        schedule = configuration.pipeline_schedule
        ranks = range(configuration.pipeline_parallel_degree)
        return Moments(
            held=[peak_holdings(schedule, rank=rank, **shape) for rank in ranks],
            alike=[in_flight(schedule, stage=rank, **shape) for rank in ranks],
        )


def apart(made: Formulation, moments: Moments) -> None:
    """Add C9 to a program that has C5 and N[j,k]."""
    for rank in range(made.instance.stage_count):
        columns = _add_layers_apart(made, rank)
        for moment in moments.held[rank]:
            more = [held - moments.alike[rank] for held in moment]
            _keep_within(made, rank, columns, more)


def _add_layers_apart(made: Formulation, rank: int) -> _Columns:
    """Add m[j,k,s] of a rank, by part, kind and choice; they are shares of n and add up to N."""
    program, columns = made.program, _Columns()
    stages = [j for j, holder in enumerate(made.instance.holders) if holder == rank]
    free = [own for own in made.by_stage[rank] if own[0] in made.instance.free_kinds]
    for k, s, column in free:
        upper = made.program.variables[column].upper
        shares: Terms = [(column, -1.0)]
        for part, j in enumerate(stages):
            variable = Variable(name=f"m[{j},{k},{s}]", upper=upper, is_integer=True)
            columns[part, k, s] = program.add(variable)
            shares.append((columns[part, k, s], 1.0))
        program.require(f"C9_shares[rank={rank},kind={k},choice={s}]", shares, "==", 0.0)
    for part, j in enumerate(stages):
        for k in made.instance.free_kinds:
            own = [(column, 1.0) for (p, k2, _), column in columns.items() if (p, k2) == (part, k)]
            held = [*own, (made.held[j, k], -1.0)]
            program.require(f"C9_held[stage={j},kind={k}]", held, "==", 0.0)
    return columns


def _keep_within(made: Formulation, rank: int, columns: _Columns, more: Sequence[float]) -> None:
    """Require that a rank fits where its parts hold so many micro-batches `more` than in C5."""
    instance, unit = made.instance, made.scale.bytes
    row = made.program.rows[made.program.places[f"C5_memory[rank={rank}]"]]
    terms = dict(row.terms)
    parts = dict(columns)
    for k, s, column in made.by_stage[rank]:
        if k not in instance.free_kinds:
            part = 0 if k == 0 else len(more) - 1
            parts[part, k, s] = column
    for (part, k, s), column in parts.items():
        added = more[part] * float(instance.kinds[k].kept[rank, s]) / unit
        terms[column] = terms.get(column, 0.0) + added
    name = f"C9_memory[rank={rank},more={tuple(more)}]"
    made.program.require(name, list(terms.items()), "<=", row.bound)
