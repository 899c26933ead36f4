"""torchtitan on H100 with tensor parallelism over a node: tokens per second and GPU.

https://github.com/pytorch/torchtitan/blob/b5bcd76c66/benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md
(figures copied by hand): FSDP2 beside tensor parallelism of 8, compiled, without asynchronous
tensor parallelism and with it, which is 9 to 16 % faster. Tolerance: 10 %.
"""

from __future__ import annotations

import pytest

from planner.validation.case import case_of
from tests.measured_rows import TORCHTITAN, a_run

COMMON = {
    "framework": "torchtitan (2025-06)",
    "gpu": "H100-SXM",
    "tp": 8,
    "pp": 1,
    "compile": True,
    "sequence_parallel": True,
}
SMALL = {"num_gpus": 64, "dp": 8, "mbs": 12, "gbs": 96, "recompute": "selective"}
LARGE = {
    "model": "llama3-70b",
    "layers": 80,
    "hidden_size": 8192,
    "ffn_size": 28672,
    "heads": 64,
    "num_gpus": 256,
    "dp": 32,
    "mbs": 16,
    "gbs": 512,
    "recompute": "full",
}
ROWS = (
    ({**LARGE, "precision": "bf16"}, (597.3, 652.4)),
    ({**LARGE, "precision": "fp8"}, (809.8, 942.4)),
    ({**SMALL, "precision": "bf16"}, (4378.0, 4809.4)),
    ({**SMALL, "precision": "fp8"}, (5078.1, 5570.1)),
)


@pytest.mark.parametrize(("changes", "published"), ROWS)
def test_throughput_is_the_published_one_with_collectives_beside_products_and_without(
    changes: dict[str, object], published: tuple[float, float]
) -> None:
    predicted = [
        case_of(a_run(TORCHTITAN, **{**COMMON, **changes, "tensor_parallel_overlap": overlapped}))
        .price()
        .tokens_per_second_per_device
        for overlapped in (False, True)
    ]
    assert predicted == pytest.approx(list(published), rel=0.10)
