"""Fronts, alternatives, heatmaps and sizes against solving everything one by one, at random.

The seeds are fixed; each draws a small cluster (every third of two kinds of devices), its memory, a
batch and the techniques that are allowed.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from planner.answers.alternatives import best_alternatives
from planner.answers.finalists import fastest_plan
from planner.answers.frontier import frontier
from planner.answers.heatmap import heatmap
from planner.requests.inquiry import Inquiry, Solution
from planner.requests.resolution import Request
from planner.requests.variation import devices, with_cluster, with_limits, with_memory_cap
from planner.schema.cluster import Cluster, NodeGroup
from planner.schema.job import DegreeLimit
from planner.space.degrees import enumerate_configurations
from planner.units import GIB
from tests.tight_requests import FEW_CHOICES, a_tight_request

SEEDS = range(9)
DRAWN = [pytest.param(seed, marks=[] if seed < 3 else [pytest.mark.full]) for seed in SEEDS]
GROUP = (
    "tensor_parallel_degree",
    "pipeline_parallel_degree",
    "context_parallel_degree",
    "expert_parallel_degree",
)


def drawn(seed: int) -> Request:
    """Return the request of a seed."""
    random = np.random.default_rng(seed)
    memory = float(random.uniform(9.0, 24.0)) * GIB
    devices = ["h100-sxm5-80gb", "a100-sxm4-80gb"][: 2 if seed % 3 == 2 else 1]
    groups = tuple(
        NodeGroup(
            name=device,
            device=device,
            node_count=1,
            devices_per_node=int(random.choice([2, 4])),
            memory_bytes=memory,
        )
        for device in devices
    )
    limits = FEW_CHOICES.model_copy(
        update={
            "zero_stages": tuple(sorted(random.choice(4, size=2, replace=False).tolist())),
            "fits_probability": (None, 0.95)[seed % 2],
            "micro_batch_size": DegreeLimit(min=1, max=int(random.choice([1, 4]))),
        }
    )
    cluster = Cluster(name=f"drawn-{seed}", node_groups=groups)
    batch = int(random.choice([16, 24]))
    return a_tight_request(cluster=cluster, limits=limits, global_batch_size=batch)


def solved(request: Request) -> Solution | None:
    answer = fastest_plan(request, inquiry=Inquiry.within(60.0))
    return answer if isinstance(answer, Solution) else None


def fixed(names: tuple[str, ...], degrees: tuple[int, ...]) -> dict[str, DegreeLimit]:
    return {
        name: DegreeLimit(min=degree, max=degree)
        for name, degree in zip(names, degrees, strict=True)
    }


def legal(request: Request, names: tuple[str, ...]) -> set[tuple[int, ...]]:
    space = enumerate_configurations(request.model.resolved, request.hardware, request.job.resolved)
    return {tuple(int(getattr(row, name)) for name in names) for row in space.rows}


@pytest.mark.parametrize("seed", DRAWN)
def test_alternatives_are_the_best_of_every_degree(seed):
    request = drawn(seed)
    alone = [solved(with_limits(request, **fixed(GROUP, one))) for one in legal(request, GROUP)]
    expected = sorted(one.step_seconds for one in alone if one is not None)
    found, _ = best_alternatives(request, 50, inquiry=Inquiry.within(60.0))
    assert [plan.step_seconds for plan in found] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", DRAWN)
def test_no_cap_gives_a_plan_that_beats_a_point_of_the_front(seed):
    request = drawn(seed)
    front = frontier(request, inquiry=Inquiry.within(60.0), point_count=4)
    assert front.status in {"complete", "infeasible"}
    whole = request.cluster.resolved
    points = [point for point in front.points if point.device_count == whole.device_count]
    for cap in np.linspace(4.0, 24.0, 9) * GIB:
        capped = whole
        for device in devices(whole):
            capped = with_memory_cap(capped, device, float(cap))
        found = solved(with_cluster(request, capped))
        for point in points if found is not None else ():
            known = point.certificate.closed_form.step_seconds
            faster = found.prediction.closed_form_seconds < known * (1.0 - 1e-9)
            leaner = found.peak_memory_bytes <= (point.memory_cap_bytes or np.inf)
            assert not (faster and leaner)


@pytest.mark.parametrize("seed", DRAWN)
def test_every_cell_of_a_heatmap_is_the_best_of_its_micro_batch_sizes(seed):
    request = drawn(seed)
    names = ("tensor_parallel_degree", "pipeline_parallel_degree", "micro_batch_size")
    least: dict[tuple[int, ...], tuple[float, float]] = {}  # closed form, and its simulated step
    for degrees in legal(request, names):
        alone = solved(with_limits(request, **fixed(names, degrees)))
        steps = (np.inf, np.inf)
        if alone is not None:
            steps = (alone.prediction.closed_form_seconds, alone.step_seconds)
        least[degrees[:2]] = min(steps, least.get(degrees[:2], (np.inf, np.inf)))
    expected = {degrees: step for degrees, (_, step) in least.items()}
    grid = heatmap(request, best_seconds=1.0, inquiry=Inquiry.within(60.0))
    pairs = itertools.product(grid.rows, grid.columns)
    assert [(cell.row, cell.column) for cell in grid.cells] == list(pairs)
    for cell in grid.cells:
        step = np.inf if cell.step_seconds is None else cell.step_seconds
        assert step == pytest.approx(expected.get((cell.row, cell.column), np.inf), rel=1e-9)
        assert (cell.status == "illegal") == ((cell.row, cell.column) not in expected)


def test_the_draws_are_not_all_alike():
    requests = [drawn(seed) for seed in SEEDS]
    assert len({request.cluster.resolved.device_count for request in requests}) >= 3
    assert any(len(request.cluster.resolved.node_groups) == 2 for request in requests)
    assert sum(solved(request) is not None for request in requests) >= 5
