"""Instance: the numbers of one configuration, ready to be optimised.

Sets: stages r = 0..p-1; runs k of L_k identical layers in chain order, the embedding first (pinned
to stage 0) and the head last (pinned to stage p-1); choices s of run k.

Numbers per run and choice: tau (seconds per micro-batch), u (seconds once a step), static and
act (bytes, act per micro-batch in flight), w (transient bytes), h (host bytes). Per stage:
micro-batches in flight f_r, fixed seconds t0_r, fixed bytes b0_r.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.cost.configuration import Configuration, Floats, Integers
from planner.cost.layer_costs import CostTable, LayerCosts
from planner.cost.schedule import in_flight


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """`count` identical layers with their choices; arrays are [choices].

    `choice` maps each kept choice to its place in the table it came from.
    """

    count: int
    pinned_stage: int | None
    pace: Floats
    end: Floats
    static: Floats
    activation: Floats
    transient: Floats
    host: Floats
    choice: tuple[int, ...]

    def memory(self, micro_batches_in_flight: float) -> Floats:
        """Return static bytes and the activations in flight of one layer, [choices]."""
        return self.static + micro_batches_in_flight * self.activation


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One configuration's numbers; stage arrays are [stages]."""

    micro_batch_count: int
    in_flight: tuple[float, ...]
    stage_pace: Floats
    stage_bytes: Floats
    stage_end: float
    capacity_bytes: float
    host_capacity_bytes: float
    runs: tuple[Run, ...]

    @property
    def stage_count(self) -> int:
        """Return p."""
        return len(self.in_flight)

    @property
    def block_runs(self) -> tuple[int, ...]:
        """Return the indices of the runs that are free to be placed."""
        return tuple(k for k, run in enumerate(self.runs) if run.pinned_stage is None)


Counts = tuple[NDArray[np.int64], ...]  # per run: layers by [stages, choices]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What a complete assignment costs; stage arrays are [stages]."""

    step_seconds: float
    pace: Floats
    memory_bytes: Floats
    host_bytes: Floats


def evaluate(instance: Instance, counts: Counts) -> Evaluation:
    """Return the exact step and the memory of an assignment, from the counts alone."""
    pace = instance.stage_pace.copy()
    end = np.full(instance.stage_count, instance.stage_end)
    memory, host = instance.stage_bytes.copy(), np.zeros(instance.stage_count)
    transient = np.zeros(instance.stage_count)
    flight = np.array(instance.in_flight, dtype=np.float64)
    for run, placed in zip(instance.runs, counts, strict=True):
        pace += placed @ run.pace
        end += placed @ run.end
        memory += placed @ run.static + flight * (placed @ run.activation)
        host += placed @ run.host
        held = np.where(placed > 0, run.transient[None, :], 0.0)
        transient = np.maximum(transient, held.max(axis=1))
    step = pace.sum() + (instance.micro_batch_count - 1) * pace.max() + end.max()
    return Evaluation(
        step_seconds=float(step), pace=pace, memory_bytes=memory + transient, host_bytes=host
    )


def fits(instance: Instance, evaluation: Evaluation) -> bool:
    """Return whether an assignment keeps within device and host memory."""
    return bool(
        (evaluation.memory_bytes <= instance.capacity_bytes).all()
        and (evaluation.host_bytes <= instance.host_capacity_bytes).all()
    )


def instance_of(table: CostTable, index: int, configuration: Configuration) -> Instance:
    """Return the numbers of the table's row `index`, dominated choices dropped."""
    degree = configuration.pipeline_parallel_degree
    flight = tuple(
        in_flight(
            configuration.pipeline_schedule,
            micro_batch_count=configuration.micro_batch_count,
            pipeline_parallel_degree=degree,
            virtual_pipeline_degree=1,
            stage=stage,
        )
        for stage in range(degree)
    )
    boundaries = np.array(
        [(r > 0) + (r < degree - 1) for r in range(degree)],
        dtype=np.float64,
    )
    first, last = (flight[0], flight[0]), (flight[-1], flight[-1])
    runs = [_run(table.embedding, index, count=1, pinned_stage=0, flight=first)]
    for costs, count in zip(table.blocks, table.block_counts, strict=True):
        between = (min(flight), max(flight))
        runs.append(_run(costs, index, count=count, pinned_stage=None, flight=between))
    runs.append(_run(table.head, index, count=1, pinned_stage=degree - 1, flight=last))
    return Instance(
        micro_batch_count=configuration.micro_batch_count,
        in_flight=flight,
        stage_pace=boundaries * table.fixed.boundary_seconds[index, 0, -1],
        stage_bytes=boundaries * np.array(flight) * table.fixed.boundary_bytes[index, 0],
        stage_end=float(table.fixed.step_end_seconds[index]),
        capacity_bytes=table.limits.live_capacity_bytes,
        host_capacity_bytes=table.limits.host_capacity_bytes,
        runs=tuple(runs),
    )


def _run(
    costs: LayerCosts,
    index: int,
    *,
    count: int,
    pinned_stage: int | None,
    flight: tuple[float, float],
) -> Run:
    pace = costs.micro_batch_seconds.total()[index]
    end = costs.step_end_seconds.total()[index]
    static = costs.bytes.static()[index]
    activation = costs.bytes.activations[index]
    transient = costs.bytes.transient[index]
    host = costs.bytes.host[index] + flight[1] * costs.bytes.host_activations[index]
    columns = np.stack(
        [
            pace,
            end,
            static + flight[0] * activation,
            static + flight[1] * activation,
            transient,
            host,
        ]
    )
    kept = undominated(columns)
    return Run(
        count=count,
        pinned_stage=pinned_stage,
        pace=pace[kept],
        end=end[kept],
        static=static[kept],
        activation=activation[kept],
        transient=transient[kept],
        host=host[kept],
        choice=tuple(int(i) for i in kept),
    )


def undominated(columns: Floats) -> Integers:
    """Return the indices of the choices that no other choice equals or beats in every column.

    `columns` is [columns, choices]. Of equal choices the first is kept. Memory is linear in the
    micro-batches in flight, so being no worse at their least and at their most is being no worse
    at every stage.
    """
    no_worse = (columns[:, :, None] <= columns[:, None, :]).all(axis=0)
    better = no_worse & ~no_worse.T
    count = columns.shape[1]
    earlier_equal = no_worse & no_worse.T & (np.arange(count)[:, None] < np.arange(count)[None, :])
    dominated = (better | earlier_equal).any(axis=0)
    return np.flatnonzero(~dominated)
