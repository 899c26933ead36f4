"""torchtitan on 32 and 64 H200: tokens per second and GPU of Llama-3-8B in 8 bits, FSDP2 alone.

https://github.com/pytorch/torchtitan/blob/b5bcd76c66/benchmarks/llama3-8b_h200_202506_trainy-whitefiber.md
(figures copied by hand). Tolerance: 12 %.
"""

from __future__ import annotations

import pytest

from planner.validation.case import case_of
from tests.measured_rows import TORCHTITAN, a_run


@pytest.mark.parametrize(("devices", "published"), [(32, 10938), (64, 10753)])
def test_throughput_is_as_published(devices: int, published: float) -> None:
    layout = {"num_gpus": devices, "dp": devices, "mbs": 2, "gbs": 2 * devices}
    software = {"gpu": "H200-SXM", "gpu_mem_gb": 141, "precision": "fp8", "compile": True}
    case = case_of(a_run(TORCHTITAN, **{**layout, **software}))
    assert case.price().tokens_per_second_per_device == pytest.approx(published, rel=0.12)
