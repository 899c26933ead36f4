"""Results: what the server is told of how this node's part ended, the same however often."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import ValidationError

from executor.agent.run_folder import Ending, RunFolder
from executor.replaced_file import replace_file
from planner.errors import printable
from planner.schema.lease import Lease, LeaseResult
from planner.schema.lifecycle import LeaseState

_TAIL_BYTES = 8192
_REPORT_BYTES_LIMIT = 2**20
_REASON_LENGTH = 1000
_OUTCOMES = {
    "completed": LeaseState.SUCCEEDED,
    "failed": LeaseState.FAILED,
    "stopped": LeaseState.STOPPED,
    "lease_lost": LeaseState.STOPPED,
}
_FAILED_RANK = re.compile(r"rank (\d+) failed(?:: )?")
# Asked to end, launchers say that ranks were killed by SIGTERM: that is no cause.
_KILLED_RANK = re.compile(r"rank \d+ failed: was killed by SIG(?!TERM)\w+")


def result_of(
    lease: Lease, folder: RunFolder, ending: Ending, *, why: str | None, checkpoint_step: int | None
) -> LeaseResult:
    """Return the result of a command that has ended; `why` says who wanted it to stop."""
    outcome = _OUTCOMES[ending.reason]
    if outcome is LeaseState.STOPPED:
        return stopped_result(lease, why, checkpoint_step)
    if outcome is LeaseState.SUCCEEDED:
        report = _report(folder)
        if report is not None and report.get("status") == "stopped":
            return stopped_result(lease, why or "its node asked it to end", checkpoint_step)
        return LeaseResult.model_validate(
            {
                "epoch": lease.epoch,
                "outcome": outcome,
                "checkpoint_step": checkpoint_step,
                "exit_code": 0,
                "report": report,
            }
        )
    said = _last_error(folder)
    found = _FAILED_RANK.search(said or "")
    if said and found:
        said = said[found.end() :] or said
    return LeaseResult.model_validate(
        {
            "epoch": lease.epoch,
            "outcome": outcome,
            "reason": said or ending.message or f"exit status {ending.exit_status}, no message",
            "refused": folder.refusal_path.is_file(),
            "checkpoint_step": checkpoint_step,
            "failed_rank": int(found[1]) if found else None,
            "exit_code": ending.exit_status,
        }
    )


def killed_rank(folder: RunFolder) -> str | None:
    """Return which rank of this node the log says was killed, `None` if it says nothing of it.

    Ranks of other nodes fail on their connections to it, and may be heard of first.
    """
    found = _KILLED_RANK.search(_last_error(folder) or "")
    return found[0] if found else None


def stopped_result(lease: Lease, why: str | None, checkpoint_step: int | None) -> LeaseResult:
    """Return the result of a part that was stopped, with where it can go on."""
    saved = "there is no checkpoint"
    if checkpoint_step is not None:
        saved = f"the newest checkpoint is that of step {checkpoint_step}"
    reason = f"{why or 'it was stopped'}; {saved}"[:_REASON_LENGTH]
    return LeaseResult(
        epoch=lease.epoch,
        outcome=LeaseState.STOPPED,
        reason=reason,
        checkpoint_step=checkpoint_step,
    )


def write_result(folder: RunFolder, result: LeaseResult) -> None:
    """Keep a result until it is acknowledged: the server takes no second one."""
    replace_file(folder.path / "result.json", result.model_dump_json())


def read_result(folder: RunFolder) -> LeaseResult | None:
    """Return the result that was kept, `None` if there is none."""
    try:
        return LeaseResult.model_validate_json((folder.path / "result.json").read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def _report(folder: RunFolder) -> dict[str, Any] | None:
    """Return the JSON object that the command left, `None` if there is none or it is too large."""
    path = folder.path / "report.json"
    try:
        if path.stat().st_size > _REPORT_BYTES_LIMIT:
            return None
        fields = json.loads(path.read_bytes(), parse_constant=lambda _: None)
    except (OSError, ValueError):
        return None
    return fields if isinstance(fields, dict) else None


def _last_error(folder: RunFolder) -> str | None:
    """Return the last line of the log that tells of an error, else its last line."""
    try:
        with folder.log_path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return None
    spoken = [printable(line)[:_REASON_LENGTH] for line in lines if line.strip()]
    errors = [line for line in spoken if line.lower().startswith("error:") or "Error: " in line]
    return (errors or spoken or [None])[-1]  # type: ignore[list-item]
