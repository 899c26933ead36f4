"""Constraints: the rows C1 to C6, C8 and C9 of `planner.ilp.formulation`."""

from __future__ import annotations

from itertools import pairwise

from planner.ilp.cuts import added_by_cuts, cuts
from planner.ilp.formulation import Formulation, constant_fill
from planner.ilp.program import Variable

Terms = list[tuple[int, float]]

_BOUND_EASING = 1e-6


def constrain(made: Formulation, *, cutoff_seconds: float | None) -> None:
    """Add C1 to C9, C8 where there is a cutoff."""
    placed(made)
    occupied(made)
    pace(made)
    end(made)
    memory(made)
    host(made)
    cuts(made)
    bounds(made)
    if cutoff_seconds is not None:
        cutoff(made, cutoff_seconds)


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


def cutoff(made: Formulation, seconds: float) -> None:
    """C8: objective <= Z, less what no column carries."""
    bound = (seconds - constant_fill(made)) / made.scale.seconds
    made.program.require("C8_cutoff", list(made.program.objective), "<=", bound)


def bounds(made: Formulation) -> None:
    """C9: sum f_r >= S', V >= V', U >= U', V + U >= B', objective >= Z'.

    The bounds are eased by 1e-6 of themselves, more than the solver's tolerance: rows that hold
    with equality up to rounding have made HiGHS call feasible programs infeasible.
    """
    unit = made.scale.seconds / (1.0 - _BOUND_EASING)
    least = made.reduction.bounds
    ends = {made.repeated_pace, made.largest_end}
    fills = [term for term in made.program.objective if term[0] not in ends]
    fill_sum = least.fill_sum * (1.0 - _BOUND_EASING) - constant_fill(made)
    slowest, largest = (made.repeated_pace, 1.0), (made.largest_end, 1.0)
    made.program.require("C9_fill", fills, ">=", fill_sum / made.scale.seconds)
    made.program.require("C9_pace", [slowest], ">=", least.repeated_pace / unit)
    made.program.require("C9_end", [largest], ">=", least.largest_end / unit)
    made.program.require("C9_both", [slowest, largest], ">=", least.both / unit)
    total = least.total * (1.0 - _BOUND_EASING) - constant_fill(made)
    made.program.require("C9_total", list(made.program.objective), ">=", total / made.scale.seconds)
