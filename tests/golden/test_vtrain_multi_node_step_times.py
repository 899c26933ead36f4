"""vTrain (Bang et al. 2024): measured steps of a GPT of 39.1B on 512 A100, Megatron-DeepSpeed.

VIA-Research/vTrain data/ground_truth_multi.csv@f8dda8473a (figures copied by hand): nodes of eight
with four links of 200 Gb/s, fp16, full checkpointing, attention not fused. Tolerance: 17 %;
eight stages of six sequences are the row that is so slow here.
"""

from __future__ import annotations

import pytest

from planner.validation.case import case_of
from tests.measured_rows import KORTHIKANTI, a_run

MODEL = {
    "family": "vtrain-multi",
    "model": "vtrain-gpt-39.1B",
    "layers": 48,
    "hidden_size": 8192,
    "ffn_size": 32768,
    "heads": 64,
    "kv_heads": 64,
    "vocab": 50257,
    "framework": "Megatron-DeepSpeed",
    "num_gpus": 512,
    "interconnect": "4x200 Gb/s InfiniBand HDR per 8-GPU node; NVLink intra-node",
    "flash_attention": False,
    "gbs": 1536,
    "vpp": None,
    "pp_schedule": "1f1b",
}


ROWS = (
    ({"tp": 4, "pp": 4, "dp": 32, "mbs": 4}, 15.6256),
    ({"tp": 8, "pp": 2, "dp": 32, "mbs": 4}, 14.7573),
    ({"tp": 8, "pp": 4, "dp": 16, "mbs": 3}, 14.8338),
    ({"tp": 8, "pp": 8, "dp": 8, "mbs": 6}, 15.7753),
)


@pytest.mark.parametrize(("layout", "published"), ROWS)
def test_a_step_takes_as_long_as_measured(layout: dict[str, int], published: float) -> None:
    case = case_of(a_run(KORTHIKANTI, **MODEL, **layout, step_time_s=published))
    assert case.price().step_seconds.p50 == pytest.approx(published, rel=0.17)
