"""Apart: row C10 of the formulation, memory with every virtual stage of a rank counted by itself.

Variables  m[j,k,s]  layers of kind k on virtual stage j under choice s      whole

C10 apart  sum_{j of r} m[j,k,s] = n[r,k,s];   sum_s m[j,k,s] = N[j,k]
           C5 + sum_{j of r,k,s} (h_j - g_r) a[k,s] m[j,k,s] <= capacity   for every moment of r

with a the bytes that a layer keeps of a micro-batch, g_r the micro-batches in flight that C5 counts
for all virtual stages of a rank alike, and h_j those that virtual stage j holds at a moment
(`planner.cost.holdings`). The embedding is on the first virtual stage of its rank, the head on the
last of its own. C5 holds as well: it is the least that the cost model counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.cost.configuration import Configuration
from planner.cost.holdings import Holding, peak_holdings
from planner.cost.schedule import in_flight
from planner.ilp.constraints import Terms
from planner.ilp.formulation import Formulation
from planner.ilp.instance import load_of_cuts
from planner.ilp.program import Variable

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
    """Add C10 to a program that has C5 and N[j,k]."""
    for rank in range(made.instance.stage_count):
        columns = _add_layers(made, rank)
        for moment in moments.held[rank]:
            more = [held - moments.alike[rank] for held in moment]
            _keep_within(made, rank, columns, more)


def hold_as(made: Formulation, cuts: tuple[int, ...]) -> None:
    """Require that ranks hold as many layers of every kind as at these cuts, which may differ."""
    instance = made.instance
    for rank, load in enumerate(load_of_cuts(instance, cuts)):
        for k, number in zip(instance.free_kinds, load, strict=True):
            terms = [(column, 1.0) for k2, _, column in made.by_stage[rank] if k2 == k]
            made.program.require(f"load[rank={rank},kind={k}]", terms, "==", float(number))


def _add_layers(made: Formulation, rank: int) -> _Columns:
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
        program.require(f"C10_shares[rank={rank},kind={k},choice={s}]", shares, "==", 0.0)
    for part, j in enumerate(stages):
        for k in made.instance.free_kinds:
            own = [(column, 1.0) for (p, k2, _), column in columns.items() if (p, k2) == (part, k)]
            held = [*own, (made.held[j, k], -1.0)]
            program.require(f"C10_held[stage={j},kind={k}]", held, "==", 0.0)
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
    name = f"C10_memory[rank={rank},more={tuple(more)}]"
    made.program.require(name, list(terms.items()), "<=", row.bound)
