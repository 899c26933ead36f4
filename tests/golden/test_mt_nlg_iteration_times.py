"""Megatron-Turing NLG 530B: seconds of an iteration on 2,240, 2,800 and 3,360 A100.

Smith et al. 2022, arXiv:2201.11990, section 2.4 (figures copied by hand). Tolerance: 20 %: these
runs take a sixth longer than others of their stack and device.
"""

from __future__ import annotations

import pytest

from planner.validation.case import case_of
from tests.measured_rows import KORTHIKANTI, a_run

TOLERANCE = 0.2
SHAPE = {
    "family": "mt-nlg",
    "model": "mt-nlg-530b",
    "framework": "Megatron-DeepSpeed",
    "layers": 105,
    "hidden_size": 20480,
    "ffn_size": 81920,
    "heads": 128,
    "kv_heads": 128,
    "head_dim": 160,
    "precision": "bf16",
    "tp": 8,
    "pp": 35,
    "vpp": None,
    "pp_schedule": "1f1b",
    "gbs": 1920,
    "zero_stage": 1,
    "recompute": "full",
}


@pytest.mark.parametrize(("dp", "published"), [(8, 60.1), (10, 50.2), (12, 44.4)])
def test_iterations_are_as_published(dp: int, published: float) -> None:
    run = a_run(KORTHIKANTI, **SHAPE, dp=dp, num_gpus=280 * dp, step_time_s=published)
    predicted = case_of(run).price().step_seconds.p50
    assert predicted == pytest.approx(published, rel=TOLERANCE)
