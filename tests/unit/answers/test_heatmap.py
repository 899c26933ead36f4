"""Every cell of a heatmap is what solving it alone gives, or says why there is nothing."""

from __future__ import annotations

import pytest

from planner.answers.finalists import fastest_plan
from planner.answers.heatmap import heatmap
from planner.errors import InputError
from planner.requests.inquiry import Inquiry, Solution
from planner.requests.planned import Planned
from planner.requests.variation import with_limits
from planner.schema.job import DegreeLimit
from planner.schema.reasons import Heatmap
from planner.units import GIB
from tests.tight_requests import a_tight_cluster, a_tight_request

REQUEST = a_tight_request(cluster=a_tight_cluster(memory_bytes=12.0 * GIB))


def fixed(degree: int) -> DegreeLimit:
    return DegreeLimit(min=degree, max=degree)


@pytest.fixture(scope="module")
def best() -> float:
    answer = fastest_plan(REQUEST, inquiry=Inquiry.within(30.0))
    assert isinstance(answer, Solution)
    return answer.step_seconds


@pytest.fixture(scope="module")
def grid(best) -> Heatmap:
    return heatmap(REQUEST, best_seconds=best, inquiry=Inquiry.within(60.0))


def test_the_axes_are_the_legal_degrees(grid):
    assert (grid.rows, grid.columns) == ((1, 2, 4), (1, 2, 4))
    assert [(cell.row, cell.column) for cell in grid.cells] == [
        (row, column) for row in grid.rows for column in grid.columns
    ]


def test_every_solved_cell_is_the_best_step_with_its_degrees(grid):
    solved = [cell for cell in grid.cells if cell.status == "solved"]
    assert len(solved) >= 4
    for cell in solved:
        limits = {
            "tensor_parallel_degree": fixed(cell.row),
            "pipeline_parallel_degree": fixed(cell.column),
        }
        alone = fastest_plan(with_limits(REQUEST, **limits), inquiry=Inquiry.within(30.0))
        assert cell.step_seconds == pytest.approx(alone.step_seconds, rel=1e-9)
        assert cell.proven


def test_the_best_cell_is_the_plan(grid, best):
    steps = [cell.step_seconds for cell in grid.cells if cell.step_seconds is not None]
    assert min(steps) == pytest.approx(best, rel=1e-9)
    assert min(cell.slower_ratio for cell in grid.cells if cell.slower_ratio is not None) == (
        pytest.approx(0.0, abs=1e-9)
    )


def test_degrees_that_exceed_the_devices_together_are_illegal(grid):
    cell = grid.cells[-1]
    assert (cell.row, cell.column, cell.status) == (4, 4, "illegal")
    assert "does not use the cluster's 4 devices" in cell.reason


def test_a_cell_that_does_not_fit_says_how_many_bytes_are_missing(best):
    small = a_tight_request(cluster=a_tight_cluster(memory_bytes=7.0 * GIB))
    cells = heatmap(small, best_seconds=best, inquiry=Inquiry.within(60.0)).cells
    full = [cell for cell in cells if cell.status == "does_not_fit"]
    assert full
    assert all(cell.missing_bytes > 0.0 for cell in full)
    assert all("more" in cell.reason for cell in full)


def test_without_time_the_cells_are_unsolved(best):
    cells = heatmap(REQUEST, best_seconds=best, inquiry=Inquiry.within(0.0)).cells
    assert {cell.status for cell in cells} == {"out_of_time"}


def test_other_degrees_can_be_the_axes(best):
    grid = heatmap(
        REQUEST,
        best_seconds=best,
        inquiry=Inquiry.within(60.0),
        row_field="micro_batch_size",
        column_field="tensor_parallel_degree",
    )
    assert grid.row_field == "micro_batch_size"
    assert grid.rows == (1, 2, 4, 8, 16)


@pytest.mark.parametrize("axes", [("colour", "tensor_parallel_degree"), ("micro_batch_size",) * 2])
def test_what_is_no_axis_is_refused(axes, best):
    with pytest.raises(InputError, match="axes"):
        heatmap(
            REQUEST,
            best_seconds=best,
            inquiry=Inquiry.within(1.0),
            row_field=axes[0],
            column_field=axes[1],
        )


def test_the_cell_of_a_plan_is_known_without_a_search(best):
    answer = fastest_plan(REQUEST, inquiry=Inquiry.within(30.0))
    assert isinstance(answer, Solution)
    own = Planned(
        request=REQUEST, strategy=answer.strategy, prediction=answer.prediction, is_proven=True
    )
    late = Inquiry.within(0.0)
    cells = heatmap(REQUEST, best_seconds=best, planned=own, inquiry=late).cells
    (solved,) = [cell for cell in cells if cell.status == "solved"]
    assert late.search_count == 0
    assert (solved.row, solved.column) == (
        answer.strategy.tensor_parallel_degree,
        answer.strategy.pipeline_parallel_degree,
    )
    assert (solved.step_seconds, solved.slower_ratio, solved.proven) == (best, 0.0, True)


def test_the_bytes_that_a_cell_lacks_are_said_to_be_a_bound(best):
    small = a_tight_request(cluster=a_tight_cluster(memory_bytes=7.0 * GIB))
    cells = heatmap(small, best_seconds=best, inquiry=Inquiry.within(60.0)).cells
    full = [cell for cell in cells if cell.status == "does_not_fit"]
    assert all("needs at least" in cell.reason for cell in full)
