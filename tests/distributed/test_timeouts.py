"""A rank that does not come ends the run within the limit, whichever group waits for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributed.forking_launches import ForkingLaunches
from tests.distributed.plans import cpu_plan

pytestmark = pytest.mark.distributed


def test_a_rank_that_sleeps_ends_a_pipeline_within_the_limit_of_steps(
    launches: ForkingLaunches, tmp_path: Path
) -> None:
    """The script raises unless all its groups wait as long as was asked, before and after."""
    plan = cpu_plan(data_parallel_degree=2, pipeline_parallel_degree=2, micro_batch_size=2)
    (tmp_path / "plan.json").write_text(plan.to_json())
    (tmp_path / "script.py").write_text(SLEEPS)
    limits = ("--timeout-seconds", "2", "--start-timeout-seconds", "60")
    words = (str(tmp_path / "plan.json"), *limits, "--", str(tmp_path / "script.py"))
    result = launches.launch(tmp_path, *words)
    assert result.returncode == 1
    assert result.stderr == (
        "error: rank 3 failed: did not come to where other ranks waited: it had begun 1 step, and "
        "was at script.py, line 24\n"
    )


SLEEPS = """
import threading
import torch
import executor
from executor.losses import next_token_loss
from executor.models.decoder import Decoder

def limits():
    groups = torch.distributed.distributed_c10d._world.pg_map
    cpu = torch.device("cpu")
    seconds = [group._get_backend(cpu).options._timeout.total_seconds() for group in groups]
    assert len(seconds) > 4
    return sorted(set(seconds))

session = executor.start()
graph = session.plan.model.resolved
trainer = session.parallelize(lambda: Decoder(graph), next_token_loss, torch.optim.AdamW)
assert limits() == [60.0]
tokens = torch.zeros((8, 16), dtype=torch.long)
for inputs, targets in session.shard([(tokens, tokens)] * 3):
    if trainer.step_count == 1:
        assert limits() == [2.0]
        if session.rank == 3:
            threading.Event().wait()
    trainer.step(inputs, targets)
"""
