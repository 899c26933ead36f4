"""Constraints: the rows C1 to C10 of `planner.ilp.formulation`."""

from __future__ import annotations

from itertools import pairwise

from planner.ilp.formulation import Formulation
from planner.ilp.program import Variable

Terms = list[tuple[int, float]]

_BOUND_EASING = 1e-6


def constrain(made: Formulation, *, cutoff_seconds: float | None) -> None:
    """Add every family of rows."""
    placed(made)
    occupied(made)
    pace(made)
    end(made)
    memory(made)
    host(made)
    contiguous(made)
    windows(made)
    bounds(made)
    if cutoff_seconds is not None:
        cutoff(made, cutoff_seconds)


def placed(made: Formulation) -> None:
    """C1: sum_{r,s} n[r,k,s] = L_k."""
    for k, run in enumerate(made.instance.runs):
        terms = [(column, 1.0) for (_, k2, _), column in made.layers.items() if k2 == k]
        made.program.require(f"C1_placed[run={k}]", terms, "==", run.count)


def occupied(made: Formulation) -> None:
    """C2: sum over block runs of n[r,k,s] >= 1."""
    blocks = set(made.instance.block_runs)
    for r in range(made.instance.stage_count):
        terms = [(c, 1.0) for (r2, k, _), c in made.layers.items() if r2 == r and k in blocks]
        made.program.require(f"C2_occupied[stage={r}]", terms, ">=", 1.0)


def pace(made: Formulation) -> None:
    """C3: V - (m - 1) sum tau n >= (m - 1) t0_r."""
    instance = made.instance
    unit = made.scale.seconds
    rest = float(instance.micro_batch_count - 1)
    for r in range(instance.stage_count):
        terms: Terms = [(made.repeated_pace, 1.0)]
        for k, s, column in _on_stage(made, r):
            terms.append((column, -rest * float(instance.runs[k].pace[s]) / unit))
        bound = rest * float(instance.stage_pace[r]) / unit
        made.program.require(f"C3_pace[stage={r}]", terms, ">=", bound)


def end(made: Formulation) -> None:
    """C4: U - sum u n >= u0."""
    unit = made.scale.seconds
    for r in range(made.instance.stage_count):
        terms: Terms = [(made.largest_end, 1.0)]
        for k, s, column in _on_stage(made, r):
            terms.append((column, -float(made.instance.runs[k].end[s]) / unit))
        made.program.require(f"C4_end[stage={r}]", terms, ">=", made.instance.stage_end / unit)


def memory(made: Formulation) -> None:
    """C5: sum (static + f_r act) n + w_0 + sum_j (w_j - w_{j-1}) q[r,j] <= capacity - b0_r.

    q[r,j] is forced to 1 by n[r,k,s] <= most q[r,j] for every choice of level j, and
    q[r,j] <= q[r,j-1]; the largest transient then counts once. most[r,k,s], the bound of the
    variable itself, is the tightest big-M.
    """
    instance, unit = made.instance, made.scale.bytes
    for r in range(instance.stage_count):
        columns = list(_on_stage(made, r))
        terms: Terms = [
            (column, float(instance.runs[k].memory(instance.in_flight[r])[s]) / unit)
            for k, s, column in columns
        ]
        levels = sorted({float(instance.runs[k].transient[s]) for k, s, _ in columns})
        switches = _add_switches(made, r, levels)
        for (below, level), switch in zip(pairwise(levels), switches, strict=True):
            terms.append((switch, (level - below) / unit))
        for k, s, column in columns:
            place = levels.index(float(instance.runs[k].transient[s]))
            if place > 0:
                big = float(made.reduction.most[k][r, s])
                made.program.require(
                    f"C5_level[stage={r},run={k},choice={s}]",
                    [(column, 1.0), (switches[place - 1], -big)],
                    "<=",
                    0.0,
                )
        left = instance.capacity_bytes - float(instance.stage_bytes[r]) - levels[0]
        made.program.require(f"C5_memory[stage={r}]", terms, "<=", left / unit)


def _add_switches(made: Formulation, r: int, levels: list[float]) -> list[int]:
    """Add q[r,j] for every level above the least, each at most the one below."""
    switches: list[int] = []
    for j in range(1, len(levels)):
        variable = Variable(name=f"q[{r},{j}]", upper=1.0, is_integer=True)
        switches.append(made.program.add(variable))
        if j > 1:
            made.program.require(
                f"C5_order[stage={r},level={j}]",
                [(switches[-1], 1.0), (switches[-2], -1.0)],
                "<=",
                0.0,
            )
    return switches


def host(made: Formulation) -> None:
    """C6: sum h n <= host capacity, where any choice uses the host."""
    instance = made.instance
    unit = max(instance.host_capacity_bytes, 1.0)
    for r in range(instance.stage_count):
        terms = [
            (column, float(instance.runs[k].host[s]) / unit)
            for k, s, column in _on_stage(made, r)
            if instance.runs[k].host[s] > 0.0
        ]
        if terms:
            bound = instance.host_capacity_bytes / unit
            made.program.require(f"C6_host[stage={r}]", terms, "<=", bound)


def contiguous(made: Formulation) -> None:
    """C7: run k+1 starts on stage r only if run k is placed whole by the end of stage r.

    sum_{r'<=r} N[r',k] >= L_k z[r,k] and sum_{r'<=r} N[r',k+1] <= L_{k+1} z[r,k]. Where the window
    of the cut after stage r lies on one side of the run's end, the columns left say as much. With
    one run of blocks there is nothing to order: embedding and head are pinned.
    """
    runs = made.instance.block_runs
    cuts = made.reduction.cuts
    run_end = 0
    for k, following in pairwise(runs):
        run_end += made.instance.runs[k].count
        for r in range(made.instance.stage_count - 1):
            if not cuts.earliest[r + 1] < run_end < cuts.latest[r + 1]:
                continue
            switch = made.program.add(Variable(name=f"z[{r},{k}]", upper=1.0, is_integer=True))
            until = _until(made, r, k)
            count = float(made.instance.runs[k].count)
            made.program.require(
                f"C7_whole[stage={r},run={k}]", [*until, (switch, -count)], ">=", 0.0
            )
            later = float(made.instance.runs[following].count)
            started = _until(made, r, following)
            made.program.require(
                f"C7_after[stage={r},run={k}]", [*started, (switch, -later)], "<=", 0.0
            )


def cutoff(made: Formulation, seconds: float) -> None:
    """C8: objective <= the cutoff, less the constant sum of t0."""
    constant = float(made.instance.stage_pace.sum())
    bound = (seconds - constant) / made.scale.seconds
    made.program.require("C8_cutoff", list(made.program.objective), "<=", bound)


def windows(made: Formulation) -> None:
    """C9: earliest cut <= blocks on stages before r <= latest cut."""
    blocks = set(made.instance.block_runs)
    cuts = made.reduction.cuts
    for r in range(1, made.instance.stage_count):
        terms = [(c, 1.0) for (r2, k, _), c in made.layers.items() if r2 < r and k in blocks]
        made.program.require(f"C9_earliest[stage={r}]", terms, ">=", float(cuts.earliest[r]))
        made.program.require(f"C9_latest[stage={r}]", terms, "<=", float(cuts.latest[r]))


def bounds(made: Formulation) -> None:
    """C10: sum tau n, V, U and V + U at least their bounds.

    They are eased by more than the solver's tolerance: rows that hold with equality up to rounding
    have made HiGHS call feasible programs infeasible.
    """
    unit = made.scale.seconds / (1.0 - _BOUND_EASING)
    instance, least = made.instance, made.reduction.bounds
    repeated = (instance.micro_batch_count - 1) * least.slowest_pace
    slowest, largest = (made.repeated_pace, 1.0), (made.largest_end, 1.0)
    paces = [
        (column, float(instance.runs[k].pace[s]) / made.scale.seconds)
        for (_, k, s), column in made.layers.items()
    ]
    pace_sum = least.pace_sum * (1.0 - _BOUND_EASING) - float(instance.stage_pace.sum())
    made.program.require("C10_sum", paces, ">=", pace_sum / made.scale.seconds)
    made.program.require("C10_pace", [slowest], ">=", repeated / unit)
    made.program.require("C10_end", [largest], ">=", least.largest_end / unit)
    made.program.require("C10_both", [slowest, largest], ">=", least.both / unit)


def _until(made: Formulation, r: int, k: int) -> Terms:
    return [(c, 1.0) for (r2, k2, _), c in made.layers.items() if k2 == k and r2 <= r]


def _on_stage(made: Formulation, r: int) -> list[tuple[int, int, int]]:
    """Return (run, choice, column) of every layer column of stage r."""
    return [(k, s, column) for (r2, k, s), column in made.layers.items() if r2 == r]
