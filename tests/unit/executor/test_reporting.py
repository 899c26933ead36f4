"""The run report puts predicted beside measured, and failures name their root."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from executor.errors import RefusedError
from executor.failure import root_failure
from executor.outcome import RankOutcome, read_outcome, write_outcome
from executor.reporting import median_step_seconds, run_report, summary_lines
from planner.schema.run import RankReport, RunReport
from planner.units import GIB
from tests.builders import a_plan


def a_rank(rank: int, *seconds: float, **changes: object) -> RankReport:
    """A rank's report with the steps' `seconds`."""
    fields: dict[str, object] = {
        "rank": rank,
        "stage": rank,
        "mesh": {"pp": 2},
        "parameter_bytes": 100,
        "peak_memory_bytes": 2 * GIB,
        "peak_memory_kind": "live_tensors",
        "step_seconds": seconds,
    }
    return RankReport.model_validate({**fields, **changes})


def an_outcome(rank: RankReport) -> RankOutcome:
    """What a rank leaves that went well."""
    return RankOutcome(
        rank=rank.rank, report=rank, losses=(5.5, 4.5), backend="gloo", torch_version="2.13.0"
    )


def test_a_step_takes_as_long_as_its_slowest_rank_and_warm_up_is_left_out() -> None:
    ranks = [a_rank(0, 9.0, 1.0, 1.0, 5.0), a_rank(1, 9.0, 2.0, 3.0, 1.0)]
    assert median_step_seconds(ranks) == 3.0


def test_a_single_step_counts_though_it_warms_up() -> None:
    assert median_step_seconds([a_rank(0, 9.0)]) == 9.0


def test_the_report_holds_what_the_plan_predicted() -> None:
    """The plan's stages peak at 10 GiB, of which 1.5 GiB are the runtime's and no tensor's."""
    outcomes = [an_outcome(a_rank(0, 2.0, 1.0)), an_outcome(a_rank(1, 2.0, 1.5))]
    report = run_report(a_plan(), outcomes, device_type="cpu")
    assert report.predicted_step_seconds == 1.0
    assert report.predicted_peak_memory_bytes == (8.5 * GIB, 8.5 * GIB)
    assert report.median_step_seconds == 1.5
    assert report.losses == (5.5, 4.5)


def test_a_run_without_a_step_says_so_in_place_of_numbers() -> None:
    outcome = an_outcome(a_rank(0)).model_copy(update={"losses": ()})
    (line,) = summary_lines(run_report(a_plan(), [outcome], device_type="cpu"))
    assert line == (
        "8 ranks on cpu (gloo), no step: the loader gave no batch, or none that is still to be "
        "taken"
    )


def test_the_summary_names_stages_and_differences() -> None:
    rank = a_rank(0, 2.0, 1.0, differences_from_plan=("block 3 is missing",))
    outcomes = [an_outcome(rank), an_outcome(a_rank(1, 2.0, 1.5, peak_memory_bytes=None))]
    lines = summary_lines(run_report(a_plan(), outcomes, device_type="cpu"))
    assert "loss: 5.5000 -> 4.5000" in lines
    step = "step: measured 1.5 s (median), predicted 1 s (80 % interval 900 ms to 1.2 s)"
    assert step in lines
    assert "stage 0 peak tensor memory: measured 2 GiB, predicted 8.5 GiB" in lines
    assert "stage 1 peak tensor memory: measured not metered, predicted 8.5 GiB" in lines
    assert "rank 0: block 3 is missing" in lines


def test_each_rank_is_compared_with_what_was_predicted_for_it() -> None:
    rank = a_rank(0, 9.0, 1.0, blocks=(0, 1, 2, 5), placements={"dp_shard": 12, "whole": 2})
    lines = summary_lines(run_report(a_plan(), [an_outcome(rank)], device_type="cpu"))
    assert (
        "rank 0 (stage 0): blocks 0-2, 5, parameters 12 dp_shard, 2 whole; peak 2 GiB, 0.24 of "
        "predicted; step 1 s"
    ) in lines


def test_what_all_ranks_differ_in_is_said_once() -> None:
    ranks = [a_rank(i, 1.0, differences_from_plan=("no blocks",)) for i in range(2)]
    outcomes = [an_outcome(rank) for rank in ranks]
    lines = summary_lines(run_report(a_plan(), outcomes, device_type="cpu"))
    assert [line for line in lines if "no blocks" in line] == ["ranks 0-1: no blocks"]


def test_an_outcome_is_read_as_it_was_written(tmp_path: Path) -> None:
    outcome = RankOutcome(rank=1, error="ValueError: no")
    write_outcome(tmp_path, outcome)
    assert read_outcome(tmp_path, 1) == outcome
    assert read_outcome(tmp_path, 0) is None


def a_failure(directory: Path, rank: int, exit_code: int) -> ProcessFailure:
    """The elastic agent's note of a rank that ended badly."""
    return ProcessFailure(
        local_rank=rank, pid=1, exitcode=exit_code, error_file=str(directory / "none")
    )


@pytest.mark.parametrize(
    ("exit_codes", "message"),
    [
        ({0: 1, 1: 1}, "rank 1 failed: ValueError: first"),
        ({0: 1, 1: 1, 2: -9}, "rank 2 failed: was killed by SIGKILL"),
        ({0: 1, 1: 1, 2: -15}, "rank 1 failed: ValueError: first"),
    ],
)
def test_the_first_error_counts_unless_a_rank_was_killed(
    tmp_path: Path, exit_codes: dict[int, int], message: str
) -> None:
    write_outcome(tmp_path, RankOutcome(rank=1, error="ValueError: first"))
    write_outcome(tmp_path, RankOutcome(rank=0, error="RuntimeError: connection closed"))
    os.utime(tmp_path / "rank-1.json", ns=(1, 1))
    failures = {rank: a_failure(tmp_path, rank, code) for rank, code in exit_codes.items()}
    assert str(root_failure(ChildFailedError("ranks", failures), tmp_path)) == message


def test_what_ranks_refuse_is_said_without_a_rank(tmp_path: Path) -> None:
    refusal = "loader: the plan has sequences of 16 tokens (got 12); plan for these"
    outcome = RankOutcome(rank=1, error=refusal, is_refusal=True, is_lasting=True)
    write_outcome(tmp_path, outcome)
    failures = {rank: a_failure(tmp_path, rank, 1) for rank in range(2)}
    found = root_failure(ChildFailedError("ranks", failures), tmp_path)
    assert isinstance(found, RefusedError)
    assert found.is_lasting
    assert str(found) == refusal


def test_a_rank_that_was_killed_goes_before_what_others_refuse(tmp_path: Path) -> None:
    write_outcome(tmp_path, RankOutcome(rank=1, error="loader: no", is_refusal=True))
    failures = {0: a_failure(tmp_path, 0, -9), 1: a_failure(tmp_path, 1, 1)}
    assert str(root_failure(ChildFailedError("ranks", failures), tmp_path)) == (
        "rank 0 failed: was killed by SIGKILL"
    )


def test_a_rank_that_exited_goes_before_those_that_lost_their_connection(tmp_path: Path) -> None:
    error = "RuntimeError: Connection reset by peer"
    write_outcome(tmp_path, RankOutcome(rank=0, error=error))
    failures = {0: a_failure(tmp_path, 0, 1), 1: a_failure(tmp_path, 1, 5)}
    assert str(root_failure(ChildFailedError("ranks", failures), tmp_path)) == (
        "rank 1 failed: ended with exit status 5 and no message"
    )


def test_a_lost_connection_points_at_the_other_ranks(tmp_path: Path) -> None:
    error = "RuntimeError: [/p/gloo/pair.cc:537] Read error [::1]:99: Connection reset by peer. Hm!"
    write_outcome(tmp_path, RankOutcome(rank=0, error=error))
    failures = {0: a_failure(tmp_path, 0, 1)}
    assert str(root_failure(ChildFailedError("ranks", failures), tmp_path)) == (
        "rank 0 failed: lost its connection to another rank, which may have ended first "
        "(Connection reset by peer)"
    )


def test_the_summary_says_what_was_applied_and_which_losses_were_none() -> None:
    rank = a_rank(
        0,
        2.0,
        1.0,
        numerics={
            "precision": "fp16",
            "logits_format": "float32",
            "largest_gradient_norm": 1.0,
            "loss_scale": 65536.0,
            "ignored_target": -100,
        },
        undefined_losses={"first_step": 2, "ranks": [0, 1], "step_count": 1},
    )
    outcome = an_outcome(rank).model_copy(update={"losses": (5.5, None)})
    report = run_report(a_plan(), [outcome, an_outcome(a_rank(1, 2.0, 1.0))], device_type="cpu")
    lines = summary_lines(RunReport.model_validate_json(report.to_json()))
    assert "loss: 5.5000 -> no finite number" in lines
    assert (
        "applied: fp16, the loss gets float32, gradients are clipped to 1, "
        "the loss is scaled by 65536, targets of -100 are left out"
    ) in lines
    assert ("the loss was no finite number in 1 steps, first in step 2 on ranks 0-1") in lines
