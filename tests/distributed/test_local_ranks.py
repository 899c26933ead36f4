"""Local ranks: what a profiler measures runs as the ranks of a launched run do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.distributed

SCRIPT = """
import os, sys
from pathlib import Path
from executor.local_ranks import run_local_ranks

def rank_session(rank, folder):
    Path(folder, str(rank)).write_text(f"{os.getpid()} {os.getsid(0)}")

run_local_ranks(rank_session, sys.argv[1], rank_count=2, kind="cpu", field="test")
"""


def test_each_rank_leads_a_session_of_its_own(tmp_path: Path) -> None:
    """Linux shares cores among sessions, and torch's launcher gives each rank its own."""
    subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], check=True, timeout=600)
    told = [path.read_text().split() for path in sorted(tmp_path.iterdir())]
    assert len(told) == 2
    assert all(process == session for process, session in told)
