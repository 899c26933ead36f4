"""A node in a network of its own, whose cable is pulled out while it trains."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.namespaces import IN_A_NETWORK
from tests.chaos.server import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
_TRY = "ip link add near type veth peer name far && nsenter -t $$ -n true"


def test_a_node_whose_cable_is_pulled_out_ends_its_ranks_before_others_start_theirs(
    tmp_path: Path,
) -> None:
    """Packets are lost without a word; the run goes on elsewhere, once, and nothing is lost."""
    try:
        command = [*IN_A_NETWORK, "sh", "-c", _TRY]
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces are allowed: {error}")

    answer = subprocess.run(
        [*IN_A_NETWORK, sys.executable, "-m", "tests.chaos.namespaces", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert answer.returncode == 0, answer.stderr[-3000:]
    found = json.loads(answer.stdout.splitlines()[-1])
    assert found == {"was_at_work": True, "state": "succeeded", "epoch": 2, "losses": []}
