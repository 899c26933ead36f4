"""Oracle: the best assignment of a small chain by trying all of them.

It shares nothing with `planner.ilp`: it reads plain numbers, enumerates every cut of the chain into
stages and every choice of every layer, and applies the step and memory sums written out below.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement, product

import numpy as np

from planner.cost.configuration import Configuration, Floats
from planner.cost.layer_costs import (
    CostTable,
    LayerBytes,
    LayerCosts,
    MemoryLimits,
    MicroBatchSeconds,
    StageFixed,
    StepEndSeconds,
)
from planner.schema.strategy import PipelineSchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOption:
    """What one layer costs under one choice."""

    pace: float
    end: float = 0.0
    static: float = 0.0
    activation: float = 0.0
    transient: float = 0.0
    host: float = 0.0


Options = tuple[LayerOption, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """A job small enough to try everything: one configuration's numbers, stage by stage."""

    stage_count: int
    micro_batch_count: int
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
    embedding: Options
    runs: tuple[tuple[int, Options], ...]
    head: Options
    boundary_pace: float = 0.0
    boundary_bytes: float = 0.0
    stage_end: float = 0.0
    capacity: float
    host_capacity: float = 0.0

    def in_flight(self, stage: int) -> int:
        """All micro-batches under GPipe, the stages that follow (with itself) under 1F1B."""
        if self.schedule is PipelineSchedule.GPIPE:
            return self.micro_batch_count
        return min(self.micro_batch_count, self.stage_count - stage)

    def boundaries(self, stage: int) -> int:
        """A stage's neighbours."""
        return (stage > 0) + (stage < self.stage_count - 1)


def least_step(chain: Chain) -> float | None:
    """Return the least step of all assignments that fit, None where none does."""
    blocks = [run for run, (count, _) in enumerate(chain.runs) for _ in range(count)]
    best: float | None = None
    for cuts in combinations(range(1, len(blocks)), chain.stage_count - 1):
        edges = (0, *cuts, len(blocks))
        stages = [
            _stage_costs(chain, stage, blocks[edges[stage] : edges[stage + 1]])
            for stage in range(chain.stage_count)
        ]
        for costs in product(*stages):
            pace, end = zip(*costs, strict=True)
            step = sum(pace) + (chain.micro_batch_count - 1) * max(pace) + max(end)
            best = step if best is None else min(best, step)
    return best


def _stage_costs(chain: Chain, stage: int, blocks: Sequence[int]) -> list[tuple[float, float]]:
    """Return pace and end of every way to run the stage that fits and that no other beats."""
    found: list[tuple[float, float]] = []
    for options in _ways(chain, stage, blocks):
        if not _fits(chain, stage, options):
            continue
        pace = sum(o.pace for o in options) + chain.boundaries(stage) * chain.boundary_pace
        end = sum(o.end for o in options) + chain.stage_end
        if any(p <= pace and e <= end for p, e in found):
            continue
        found = [(p, e) for p, e in found if not (pace <= p and end <= e)]
        found.append((pace, end))
    return found


def _ways(chain: Chain, stage: int, blocks: Sequence[int]) -> Iterator[tuple[LayerOption, ...]]:
    """Yield the layers' options; layers of one run are alike, so their order does not matter."""
    parts: list[list[tuple[LayerOption, ...]]] = [
        list(combinations_with_replacement(chain.runs[run][1], blocks.count(run)))
        for run in sorted(set(blocks))
    ]
    if stage == 0:
        parts.append([(option,) for option in chain.embedding])
    if stage == chain.stage_count - 1:
        parts.append([(option,) for option in chain.head])
    for way in product(*parts):
        yield tuple(option for part in way for option in part)


def _fits(chain: Chain, stage: int, options: Sequence[LayerOption]) -> bool:
    flight = chain.in_flight(stage)
    held = sum(o.static + flight * o.activation for o in options)
    held += chain.boundaries(stage) * flight * chain.boundary_bytes
    held += max(o.transient for o in options)
    return held <= chain.capacity and sum(o.host for o in options) <= chain.host_capacity


def configuration_of(chain: Chain) -> Configuration:
    """Return a configuration with the chain's pipeline."""
    return Configuration(
        pipeline_parallel_degree=chain.stage_count,
        pipeline_schedule=chain.schedule,
        micro_batch_count=chain.micro_batch_count,
    )


def table_of(chains: Sequence[Chain]) -> CostTable:
    """Return a cost table with one row a chain; capacities and counts are the first chain's."""
    first = chains[0]
    return CostTable(
        embedding=_costs([chain.embedding for chain in chains]),
        blocks=tuple(
            _costs([chain.runs[run][1] for chain in chains]) for run in range(len(first.runs))
        ),
        block_counts=tuple(count for count, _ in first.runs),
        head=_costs([chain.head for chain in chains]),
        fixed=StageFixed(
            boundary_seconds=np.array([[[float(chain.boundary_pace)]] for chain in chains]),
            boundary_bytes=np.array([[float(chain.boundary_bytes)] for chain in chains]),
            step_end_seconds=np.array([float(chain.stage_end) for chain in chains]),
        ),
        limits=MemoryLimits(
            device_bytes=first.capacity,
            capacity_bytes=first.capacity,
            runtime_bytes=0.0,
            slack_ratio=0.0,
            host_capacity_bytes=first.host_capacity,
        ),
    )


def _costs(rows: Sequence[Options]) -> LayerCosts:
    def column(name: str) -> Floats:
        return np.array([[float(getattr(option, name)) for option in row] for row in rows])

    none = np.zeros_like(column("pace"))
    return LayerCosts(
        micro_batch_seconds=MicroBatchSeconds(
            compute=column("pace"),
            recompute=none,
            tensor_parallel=none,
            context_parallel=none,
            expert_parallel=none,
            pipeline_point_to_point=none,
            data_parallel_exposed=none,
            offload_exposed=none,
            host=none,
            forward_share=none + 1.0 / 3.0,
            weight_gradient_share=none + 1.0 / 3.0,
        ),
        step_end_seconds=StepEndSeconds(
            data_parallel_exposed=column("end"), offload_exposed=none, optimizer=none
        ),
        bytes=LayerBytes(
            parameters=column("static"),
            gradients=none,
            optimizer=none,
            activations=column("activation"),
            logits=none,
            communication_buffers=none,
            transient=column("transient"),
            host=column("host"),
            host_activations=none,
        ),
    )


def chain_of(table: CostTable, index: int, configuration: Configuration) -> Chain:
    """Return the table's row `index` as plain numbers."""
    return Chain(
        stage_count=configuration.pipeline_parallel_degree,
        micro_batch_count=configuration.micro_batch_count,
        schedule=configuration.pipeline_schedule,
        embedding=_options(table.embedding, index),
        runs=tuple(
            (count, _options(costs, index))
            for costs, count in zip(table.blocks, table.block_counts, strict=True)
        ),
        head=_options(table.head, index),
        boundary_pace=float(table.fixed.boundary_seconds[index, 0, 0]),
        boundary_bytes=float(table.fixed.boundary_bytes[index, 0]),
        stage_end=float(table.fixed.step_end_seconds[index]),
        capacity=table.limits.live_capacity_bytes,
        host_capacity=table.limits.host_capacity_bytes,
    )


def _options(costs: LayerCosts, index: int) -> Options:
    held = costs.bytes
    columns = (
        costs.micro_batch_seconds.total(),
        costs.step_end_seconds.total(),
        held.static(),
        held.activations,
        held.transient,
        held.host,
    )
    names = ("pace", "end", "static", "activation", "transient", "host")
    return tuple(
        LayerOption(**{name: float(c[index, s]) for name, c in zip(names, columns, strict=True)})
        for s in range(columns[0].shape[1])
    )
