"""vTrain (Bang et al. 2024): measured steps of small GPTs on 2 to 8 A100 of one node.

VIA-Research/vTrain data/ground_truth_single.csv@f8dda8473a (figures copied by hand): sequences of
1,024, fp16, full checkpointing, attention not fused. Tolerance: 19 %, the 90th percentile of 353
of its rows.
"""

from __future__ import annotations

import pytest

from planner.validation.case import case_of
from tests.measured_rows import KORTHIKANTI, a_run

MODEL = {
    "family": "vtrain-single",
    "model": "vtrain-gpt",
    "heads": 16,
    "kv_heads": 16,
    "vocab": 50257,
    "tied_embeddings": True,
    "seq_len": 1024,
    "framework": "Megatron-DeepSpeed",
    "interconnect": "NVLink, single node",
    "flash_attention": False,
    "zero_stage": 0,
    "vpp": None,
    "pp_schedule": "1f1b",
}
NARROW = {"hidden_size": 1024, "ffn_size": 4096, "head_dim": 64}
WIDE = {"hidden_size": 2048, "ffn_size": 8192, "head_dim": 128}
ROWS = (
    ({**NARROW, "layers": 20, "dp": 4, "tp": 1, "pp": 1, "mbs": 4, "gbs": 32}, 0.247584),
    ({**NARROW, "layers": 24, "dp": 1, "tp": 4, "pp": 2, "mbs": 2, "gbs": 4}, 0.128248),
    ({**WIDE, "layers": 12, "dp": 4, "tp": 1, "pp": 2, "mbs": 2, "gbs": 16}, 0.137885),
    ({**WIDE, "layers": 20, "dp": 1, "tp": 1, "pp": 2, "mbs": 2, "gbs": 16}, 0.589896),
    ({**WIDE, "layers": 24, "dp": 2, "tp": 4, "pp": 1, "mbs": 1, "gbs": 32}, 1.211824),
)


@pytest.mark.parametrize(("changes", "published"), ROWS)
def test_a_step_takes_as_long_as_measured(changes: dict[str, int], published: float) -> None:
    devices = changes["dp"] * changes["tp"] * changes["pp"]
    run = a_run(KORTHIKANTI, **{**MODEL, **changes}, num_gpus=devices, step_time_s=published)
    assert case_of(run).price().step_seconds.p50 == pytest.approx(published, rel=0.19)
