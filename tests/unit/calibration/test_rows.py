"""Rows: as of which stack runs of a program that is not known are read."""

from __future__ import annotations

import pytest

from planner.calibration.report import Origin, calibration_report
from planner.calibration.row import sorted_rows
from planner.schema.job import Stack
from planner.schema.measured_run import MeasuredRun
from planner.validation.case import case_of
from tests.measured_rows import TORCHTITAN, a_run

ORIGIN = Origin(name="ours", date="2026-11-25", source="runs", source_digest="0" * 64)


def runs_like(stack: Stack, *, factor: float) -> list[MeasuredRun]:
    """Runs of a program of one's own that take `factor` times what the stack is predicted to."""
    shapes = [
        {"mbs": mbs, "gbs": 64 * mbs, "recompute": recompute, "seq_len": seq}
        for mbs in (1, 2)
        for recompute in ("none", "full")
        for seq in (2048, 8192)
    ]
    fields = {"framework": "an own program", "sharding": None, "tokens_per_s_per_gpu": None}
    own = [a_run(TORCHTITAN, **fields, **shape) for shape in shapes]
    steps = [case_of(run.model_copy(update={"stack": stack})).price().step_seconds for run in own]
    return [
        run.model_copy(update={"step_time_s": factor * step.p50})
        for run, step in zip(own, steps, strict=True)
    ]


@pytest.mark.parametrize("stack", list(Stack))
def test_runs_of_an_unknown_program_are_priced_under_the_stack_that_is_closest(
    stack: Stack,
) -> None:
    """Whatever the factor, which a calibration finds: what counts is that they differ alike."""
    sorting = sorted_rows(runs_like(stack, factor=1.3))
    assert sorting.read_as == {"an own program": stack}
    assert [pair[1] for pair in sorting.rows] == [stack]


def test_a_network_that_is_not_known_leaves_a_known_program_its_stack() -> None:
    words = {"interconnect": "NVLink; InfiniBand 100 Gb/s", "step_time_s": 1.0}
    run = a_run(TORCHTITAN, num_gpus=16, dp=16, gbs=32, mbs=2, **words)
    assert len(case_of(run).others) == 1
    for stack in (None, Stack.TORCH):
        sorting = sorted_rows([run], stack=stack)
        assert sorting.read_as == {}
        ((row,),) = sorting.rows.values()
        assert (row.case.job.stack, row.case.others) == (Stack.TORCH, ())


def test_a_stack_that_is_asked_for_is_what_they_are_read_as() -> None:
    sorting = sorted_rows(runs_like(Stack.TORCH, factor=1.0), stack=Stack.DEEPSPEED)
    assert [pair[1] for pair in sorting.rows] == [Stack.DEEPSPEED]


def test_a_calibration_prices_them_under_the_stack_that_it_was_fitted_for() -> None:
    """Steps that take 1.3 times as long are found to within a few percent."""
    runs = runs_like(Stack.MEGATRON, factor=1.3)
    report = calibration_report(sorted_rows(runs), ORIGIN)
    assert report.read_as == {"an own program": Stack.MEGATRON}
    for run in runs:
        case = case_of(run, report.profile)
        assert (case.job.stack, case.others) == (Stack.MEGATRON, ())
        assert case.price().step_seconds.p50 == pytest.approx(run.step_time_s, rel=0.05)
