"""BLOOM's trials of head counts: steps of a GPT of 182B on 384 A100, Megatron-DeepSpeed.

bigscience-workshop/bigscience train/tr11-176B-ml/chronicles-prequel.md@9e64edec2a, "Another round
of NHEADS" (figures copied by hand): 78 layers of 13,824, 2,048 sequences of 2,048 tokens, fp16,
full checkpointing, attention not fused, 12 stages of 4 tensor-parallel ranks and 8 copies. Heads of
108 are no multiple of 8. Tolerance: 8 %.
"""

from __future__ import annotations

import pytest

from planner.validation.case import case_of
from tests.measured_rows import KORTHIKANTI, a_run

MODEL = {
    "family": "bigscience-a100",
    "model": "bloom-prequel-182B-h13824-l78",
    "layers": 78,
    "hidden_size": 13824,
    "ffn_size": 55296,
    "vocab": 250880,
    "position": "alibi",
    "framework": "Megatron-DeepSpeed (BigScience fork)",
    "num_gpus": 384,
    "interconnect": None,
    "zero_stage": 1,
    "sequence_parallel": False,
    "flash_attention": False,
    "tp": 4,
    "pp": 12,
    "dp": 8,
    "vpp": None,
    "pp_schedule": "1f1b",
    "mbs": 2,
    "gbs": 2048,
}


def predicted(heads: int, published: float) -> float:
    """Return the step that is expected of a model with so many heads."""
    sizes = {"heads": heads, "kv_heads": heads, "head_dim": 13824 // heads}
    case = case_of(a_run(KORTHIKANTI, **MODEL, **sizes, step_time_s=published))
    return case.price().step_seconds.p50


@pytest.mark.parametrize(("heads", "published"), [(64, 103.51), (96, 107.12), (128, 147.41)])
def test_a_step_takes_as_long_as_measured(heads: int, published: float) -> None:
    assert predicted(heads, published) == pytest.approx(published, rel=0.08)


def test_heads_off_the_grid_cost_more_than_a_third() -> None:
    """147.41 s after 107.12: 1.38 times."""
    ratio = predicted(128, 147.41) / predicted(96, 107.12)
    assert ratio == pytest.approx(147.41 / 107.12, rel=0.08)
