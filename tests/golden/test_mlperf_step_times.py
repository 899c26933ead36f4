"""MLPerf Training 5.1: Llama-3.1-8B on 64 to 256 B200, a step of a fifth of a second.

mlcommons/training_results_v5.1 University-of-Florida/results/hpg.dgxb200x8.n{8,16,32}@441d65f444
(medians of ten runs, copied by hand). Tolerance: 7 %.
"""

from __future__ import annotations

import pytest

from planner.validation.case import case_of
from tests.measured_rows import TORCHTITAN, a_run

COMMON = {
    "family": "mlperf",
    "source": "implementations/b200_nemo/config_DGXB200_8x8x1xtp1pp1cp2_8b.sh",
    "framework": "PyTorch NVIDIA Release 25.09",
    "gpu": "B200",
    "precision": "fp8",
    "cp": 2,
    "zero_stage": 1,
    "sharding": "distributed_optimizer",
    "recompute": None,
    "tokens_per_s_per_gpu": None,
}


@pytest.mark.parametrize(("gpus", "published"), [(64, 0.18976), (128, 0.19313), (256, 0.22141)])
def test_a_step_takes_as_long_as_submitted(gpus: int, published: float) -> None:
    layout = {"num_gpus": gpus, "dp": gpus // 2, "gbs": gpus // 2}
    case = case_of(a_run(TORCHTITAN, **{**COMMON, **layout}, step_time_s=published))
    assert case.price().step_seconds.p50 == pytest.approx(published, rel=0.07)
