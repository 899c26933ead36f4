"""A Slurm controller takes the batch script for the nodes that the plan is for, and no other."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from planner.exporters.registry import export
from planner.schema.strategy import Strategy
from tests.exports.conftest import missing
from tests.unit.exporters.plans import plan_of

CLUSTER = """ClusterName=exports
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}
SlurmctldPidFile={folder}/controller.pid
ProctrackType=proctrack/linuxproc
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
GresTypes=gpu
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=3600
NodeName=node[0-1] CPUs=8 Gres=gpu:8 State=CLOUD
PartitionName=gpus Nodes=node[0-1] Default=YES State=UP
"""
TRIES = 3000


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture
def submitted(tmp_path):
    """Tries a script on a controller that knows two nodes of eight GPUs; they need not be there."""
    controller = shutil.which("slurmctld", path=f"{os.environ['PATH']}:/usr/sbin")
    if controller is None or shutil.which("sbatch") is None:
        missing("Slurm")
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True)  # noqa: S607
    config = tmp_path / "slurm.conf"
    config.write_text(
        CLUSTER.format(
            host=socket.gethostname(), port=free_port(), user=user.stdout.strip(), folder=tmp_path
        )
    )
    environment = os.environ | {"SLURM_CONF": str(config)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, env=environment, capture_output=True, text=True, check=False, timeout=600
        )

    def tried(text: str) -> tuple[int, str]:
        script: Path = tmp_path / "slurm.sh"
        script.write_text(text)
        done = run("sbatch", "--test-only", str(script))
        return done.returncode, done.stderr

    with (tmp_path / "controller.log").open("w") as log:
        process = subprocess.Popen(
            [controller, "-D", "-f", str(config)], env=environment, stdout=log, stderr=log
        )
    try:
        for _ in range(TRIES):
            if run("scontrol", "ping").stdout.count("UP") or process.poll() is not None:
                break
            time.sleep(0.1)
        assert process.poll() is None, (tmp_path / "controller.log").read_text()[-3000:]
        yield tried
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def test_slurm_finds_the_nodes_that_a_script_asks_for(submitted):
    plan = plan_of(Strategy(data_parallel_shard_degree=16), cluster="2x8xh100-sxm5-80gb")
    code, said = submitted(export(plan, "slurm").files[0].text)
    assert code == 0, said
    assert "on nodes node[0-1]" in said


def test_slurm_has_no_nodes_for_a_plan_of_more(submitted):
    plan = plan_of(Strategy(data_parallel_shard_degree=32), cluster="4x8xh100-sxm5-80gb")
    code, said = submitted(export(plan, "slurm").files[0].text)
    assert code != 0
    assert "not available" in said
