"""Warm processes: they answer, they are ended when they hang, and another takes their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.warm_process import WarmProcess

PATIENCE_SECONDS = 600.0
ECHO = """
import json, os, sys, time
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("hang"):
        time.sleep(600)
    if asked.get("die"):
        os._exit(3)
    print(json.dumps({"status": "proven", "pid": os.getpid()}), flush=True)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that answers, hangs or dies as it is asked to."""
    (tmp_path / "echoing.py").write_text(ECHO)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "echoing"


@pytest.mark.slow
def test_one_process_answers_many_questions(module: str) -> None:
    with WarmProcess(module, seconds_limit=PATIENCE_SECONDS) as process:
        first, second = process.ask({}), process.ask({})
    assert first["status"] == "proven"
    assert first["pid"] == second["pid"]


@pytest.mark.slow
def test_a_process_that_hangs_is_ended_and_replaced(module: str) -> None:
    with WarmProcess(module, seconds_limit=PATIENCE_SECONDS) as process:
        before = process.ask({})
        process._seconds_limit = 0.5
        assert process.ask({"hang": True})["status"] == "hung"
        process._seconds_limit = PATIENCE_SECONDS
        after = process.ask({})
    assert after["status"] == "proven"
    assert after["pid"] != before["pid"]


@pytest.mark.slow
def test_a_process_that_dies_is_replaced(module: str) -> None:
    with WarmProcess(module, seconds_limit=PATIENCE_SECONDS) as process:
        assert process.ask({"die": True})["status"] == "died"
        assert process.ask({})["status"] == "proven"


@pytest.mark.slow
def test_a_module_that_does_not_start_is_an_answer_and_no_end() -> None:
    with WarmProcess("benchmarks.no_such_module", seconds_limit=PATIENCE_SECONDS) as process:
        assert process.ask({})["status"] == "died"
