"""A line now and then says how a run goes; a setting silences it."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch")

from executor.errors import LaunchError
from executor.progress_line import ProgressLine
from executor.trainer import StepMetrics
from tests.builders import a_job, a_plan, a_prediction

GIB = 2**30


def _metrics(
    seconds: float, peak_memory_bytes: int | None = None, *, between_seconds: float = 0.0
) -> StepMetrics:
    return StepMetrics(
        loss=2.5,
        seconds=seconds,
        peak_memory_bytes=peak_memory_bytes,
        between_seconds=between_seconds,
    )


def _plan() -> Any:
    job = a_job(global_batch_size=16, sequence_length=128)
    given = a_prediction()
    step = given.step_seconds.model_copy(update={"p50": 0.5})
    prediction = given.model_copy(update={"step_seconds": step, "model_flop_utilization": 0.4})
    plan = a_plan(prediction=prediction)
    return plan.model_copy(update={"job": plan.job.model_copy(update={"resolved": job})})


def _progress(*, times: list[float]) -> tuple[ProgressLine, list[str]]:
    lines: list[str] = []
    clock = iter(times)
    progress = ProgressLine(
        _plan(),
        planned_peak_bytes=8 * GIB,
        every_seconds=30.0,
        write=lines.append,
        clock=lambda: next(clock),
    )
    return progress, lines


def test_a_line_has_loss_tokens_utilization_memory_and_what_is_left() -> None:
    """2048 tokens in 1 s, at twice the planned step, so at half the planned utilization."""
    progress, lines = _progress(times=[0.0])
    progress.last_step = 102
    progress.step_ended(1, _metrics(60.0))
    progress.step_ended(2, _metrics(1.0, 6 * GIB))
    (line,) = lines
    assert line == (
        "step 2, loss 2.5000, 2,048 tokens/s, MFU 20.0 % (40.0 % planned), "
        "memory 6 GiB (8 GiB planned), 0:01:40 left"
    )


def test_what_the_script_does_between_steps_counts() -> None:
    """2048 tokens in 1 s of which the step has a quarter, and 100 steps of a second are left."""
    progress, lines = _progress(times=[0.0])
    progress.last_step = 102
    progress.step_ended(1, _metrics(60.0))
    progress.step_ended(2, _metrics(0.25, between_seconds=0.75))
    (line,) = lines
    assert line == (
        "step 2, loss 2.5000, 2,048 tokens/s, MFU 20.0 % (40.0 % planned), "
        "75 % of the time between steps, 0:01:40 left"
    )


def test_lines_are_no_closer_than_was_asked() -> None:
    progress, lines = _progress(times=[0.0, 29.0, 30.0, 31.0])
    for step in range(1, 6):
        progress.step_ended(step, _metrics(1.0))
    assert [line.split(",")[0] for line in lines] == ["step 2", "step 4"]


@pytest.mark.parametrize(
    ("rank", "seconds", "prints"), [(0, "5", True), (1, "5", False), (0, "0", False)]
)
def test_rank_0_prints_unless_silenced(rank: int, seconds: str, prints: bool) -> None:
    variables = {"MESHWRIGHT_PROGRESS_SECONDS": seconds}
    wanted = ProgressLine.wanted(_plan(), variables, rank=rank)
    assert (wanted is not None) is prints


def test_seconds_that_are_none_are_refused() -> None:
    with pytest.raises(LaunchError, match=r"MESHWRIGHT_PROGRESS_SECONDS.*\(got often\)"):
        ProgressLine.wanted(_plan(), {"MESHWRIGHT_PROGRESS_SECONDS": "often"}, rank=0)
