"""Results: what the server is told of a failure, from what the ranks printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from executor.agent.results import killed_rank, result_of
from executor.agent.run_folder import Ending
from planner.schema.lifecycle import LeaseState
from tests.unit.executor_agent.leases import a_folder, a_lease


def test_a_failure_is_told_with_its_rank_apart(tmp_path: Path) -> None:
    folder = a_folder(tmp_path)
    folder.log_path.write_text("step 1\nerror: rank 3 failed: ValueError: no such file\n")
    ending = Ending(reason="failed", exit_status=1)

    result = result_of(a_lease(), folder, ending, why=None, checkpoint_step=7)

    assert (result.failed_rank, result.reason) == (3, "ValueError: no such file")
    assert result.checkpoint_step == 7


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_failure_is_a_refusal_where_the_command_has_left_word(
    tmp_path: Path, is_refused: bool
) -> None:
    folder = a_folder(tmp_path)
    folder.log_path.write_text("error: script: is not a file (got a.py); give the path of one\n")
    if is_refused:
        folder.refusal_path.touch()
    ending = Ending(reason="failed", exit_status=1)

    result = result_of(a_lease(), folder, ending, why=None, checkpoint_step=None)

    assert (result.outcome, result.refused) == (LeaseState.FAILED, is_refused)


def test_a_run_that_its_node_asked_to_end_is_stopped_and_not_done(tmp_path: Path) -> None:
    """It ends with 0, as it does when a node is shut down."""
    folder = a_folder(tmp_path)
    (folder.path / "report.json").write_text('{"status": "stopped"}')
    ending = Ending(reason="completed", exit_status=0)

    result = result_of(a_lease(), folder, ending, why=None, checkpoint_step=7)

    assert result.outcome is LeaseState.STOPPED
    assert result.reason == "its node asked it to end; the newest checkpoint is that of step 7"
    assert result.checkpoint_step == 7


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("error: rank 3 failed: was killed by SIGKILL", "rank 3 failed: was killed by SIGKILL"),
        ("error: rank 3 failed: was killed by SIGTERM", None),
        ("error: rank 3 failed: ValueError: no", None),
        ("", None),
    ],
)
def test_a_killed_rank_is_told_unless_it_was_asked_to_end(
    tmp_path: Path, line: str, said: str | None
) -> None:
    folder = a_folder(tmp_path)
    folder.log_path.write_text(f"step 1\n{line}\n")
    assert killed_rank(folder) == said
