"""Configurations that are priced together have the prices that each has alone."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from planner.cost.configuration import Floats, combinations
from planner.cost.layer_costs import CostTable
from planner.cost.table import cost_table
from tests.draws import drawn, of_drawn
from tests.small_jobs import Priced, small_jobs

ONE_OF = 3
JOBS = drawn(range(300, 340), one_of=ONE_OF)
ROWS_MOST = 12


def table_of(job: Priced, rows: np.ndarray) -> CostTable:
    """What all layers cost in some of the job's configurations."""
    return cost_table(
        job.problem.workload,
        job.problem.hardware.kinds[0],
        job.problem.job,
        configurations=job.space.configurations.take(rows),
        choices=job.layer_choices(),
    )


def numbers_of(table: CostTable) -> list[Floats]:
    """Every array of every layer."""
    parts = [
        part
        for layer in table.layers()
        for part in (layer.micro_batch_seconds, layer.step_end_seconds, layer.bytes)
    ]
    return [getattr(part, field.name) for part in parts for field in fields(part)]


def test_a_configuration_costs_together_with_others_what_it_costs_alone() -> None:
    compared = 0
    for seed, job in small_jobs(JOBS):
        count = len(job.space.configurations)
        rows = np.unique(np.linspace(0, count - 1, ROWS_MOST).astype(np.int64))
        together = numbers_of(table_of(job, rows))
        for place, row in enumerate(rows):
            alone = numbers_of(table_of(job, np.array([row])))
            for one, all_of_them in zip(alone, together, strict=True):
                own = np.broadcast_to(all_of_them, (len(rows), *one.shape[1:]))[place]
                np.testing.assert_allclose(own, one[0], rtol=1e-12, err_msg=f"job {seed}")
                compared += 1
    assert compared > of_drawn(10_000, one_of=ONE_OF)


def test_combinations_are_found_once_whatever_the_span_of_their_columns() -> None:
    few, many = np.array([1, 0, 1, 0]), np.array([2**40, 5, 2**40, 6])
    first, whose = combinations([(few, 2), (many, 2**41), (many, 2**41)], 4)
    assert sorted(first.tolist()) == [0, 1, 3]
    assert (few[first[whose]] == few).all()
    assert (many[first[whose]] == many).all()
