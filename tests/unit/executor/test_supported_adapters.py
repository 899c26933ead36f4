"""Plans for adapters are refused before ranks start: the executor trains all parameters."""

from __future__ import annotations

import pytest

from executor.apply.supported import check_strategy
from executor.errors import UnsupportedPlanError
from planner.schema.job import Adapters
from planner.schema.strategy import Strategy
from tests.builders import a_job


def test_adapters_are_refused_by_field() -> None:
    strategy = Strategy().resolved(block_count=4, global_batch_size=16)
    job = a_job(global_batch_size=16, adapters=Adapters(rank=8))
    with pytest.raises(UnsupportedPlanError, match=r"job\.adapters.*rank 8.*without adapters"):
        check_strategy(strategy, job)
