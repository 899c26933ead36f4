"""BLOOM's prequel: steps of GPTs of 177B to 182B on 384 A100 under several layouts.

bigscience-workshop/bigscience train/tr11-176B-ml/chronicles-prequel.md@9e64edec2a (figures copied
by hand): 2,048 sequences of 2,048 tokens, Megatron-DeepSpeed, full checkpointing, attention
not fused. Tolerance: 8 %.
"""

from __future__ import annotations

import pytest

from planner.validation.case import case_of
from tests.measured_rows import KORTHIKANTI, a_run

MODEL = {
    "family": "bigscience-a100",
    "model": "bloom-prequel",
    "vocab": 250880,
    "position": "alibi",
    "framework": "Megatron-DeepSpeed (BigScience fork)",
    "num_gpus": 384,
    "interconnect": "Omni-Path inter-node (Jean Zay; CUDA_LAUNCH_BLOCKING=1 on multi-node runs)",
    "zero_stage": 1,
    "sequence_parallel": False,
    "flash_attention": False,
    "seq_len": 2048,
    "gbs": 2048,
    "vpp": None,
    "pp_schedule": "1f1b",
}
H12288 = {"layers": 96, "hidden_size": 12288, "ffn_size": 49152}
H14336 = {"layers": 72, "hidden_size": 14336, "ffn_size": 57344}
H13312 = {"layers": 82, "hidden_size": 13312, "ffn_size": 53248}
ROWS = (
    ({**H12288, "heads": 64, "tp": 8, "pp": 6, "dp": 8, "mbs": 2}, 136.73),
    ({**H12288, "heads": 128, "tp": 8, "pp": 6, "dp": 8, "mbs": 4}, 129.42),
    ({**H14336, "heads": 64, "tp": 2, "pp": 12, "dp": 16, "mbs": 2}, 112.5),
    ({**H13312, "heads": 64, "tp": 4, "pp": 12, "dp": 8, "mbs": 2, "precision": "bf16"}, 104.45),
)


@pytest.mark.parametrize(("changes", "published"), ROWS)
def test_a_step_takes_as_long_as_measured(changes: dict[str, object], published: float) -> None:
    sizes = {"kv_heads": changes["heads"], "head_dim": None}
    run = a_run(KORTHIKANTI, **{**MODEL, **changes, **sizes}, step_time_s=published)
    assert case_of(run).price().step_seconds.p50 == pytest.approx(published, rel=0.08)
