"""AMP (Li et al. 2022, arXiv:2210.07297): GPT-2 of 345M on 16 T4, Megatron-DeepSpeed, fp16.

DachengLi1/AMP src/results/homogeneous_results.txt@72eeea4551 (figures copied by hand): every layout
of its grid with two sequences a micro-batch that ran; four nodes of four devices on PCIe, 50 Gb/s
between nodes. Nothing of a T4's profile was chosen on these runs: all are 12 to 28 % too fast, and
90 % of the whole grid are within 31 %, which is the tolerance. What the grid asks for is the order
of its layouts.
"""

from __future__ import annotations

import pytest

from planner.validation.case import case_of
from tests.measured_rows import KORTHIKANTI, a_run

TOLERANCE = 0.31
MODEL = {
    "family": "amp-homogeneous",
    "model": "gpt2-345m",
    "layers": 24,
    "hidden_size": 1024,
    "ffn_size": 4096,
    "heads": 16,
    "kv_heads": 16,
    "head_dim": 64,
    "vocab": 52256,
    "seq_len": 1024,
    "framework": "DeepSpeed/Megatron-LM v1.1.5 3D parallelism (AMP fork)",
    "gpu": "T4",
    "gpu_mem_gb": 16,
    "gpus_per_node": 4,
    "num_gpus": 16,
    "interconnect": "4x AWS g4dn.12xlarge: 4xT4 PCIe per node, 50 Gb/s Ethernet inter-node",
    "mbs": 2,
    "gbs": 32,
    "vpp": None,
    "pp_schedule": "1f1b (deepspeed)",
    "recompute": "none",
}
ROWS = (  # tp, pp, dp, seconds
    (1, 2, 8, 1.38),
    (1, 4, 4, 1.41),
    (1, 8, 2, 1.43),
    (1, 16, 1, 1.76),
    (2, 1, 8, 1.64),
    (2, 2, 4, 1.61),
    (2, 4, 2, 1.66),
    (2, 8, 1, 1.85),
    (4, 1, 4, 2.13),
    (4, 2, 2, 2.12),
    (4, 4, 1, 2.22),
)


def predicted_seconds(tp: int, pp: int, dp: int) -> float:
    """What a step of one layout is said to take."""
    return case_of(a_run(KORTHIKANTI, **MODEL, tp=tp, pp=pp, dp=dp)).price().step_seconds.p50


@pytest.mark.parametrize(("tp", "pp", "dp", "published"), ROWS)
def test_a_step_takes_as_long_as_measured(tp: int, pp: int, dp: int, published: float) -> None:
    assert predicted_seconds(tp, pp, dp) == pytest.approx(published, rel=TOLERANCE)


def test_the_layout_that_is_predicted_to_be_the_fastest_is_at_most_3_percent_slower() -> None:
    chosen = min(ROWS, key=lambda row: predicted_seconds(*row[:3]))
    assert chosen[3] <= 1.03 * min(row[3] for row in ROWS)


def test_more_tensor_parallelism_over_pcie_is_slower_as_measured() -> None:
    """Whatever the pipeline: 1.38 to 1.76, 1.61 to 1.85 and 2.12 to 2.22 s."""
    slowest, fastest = (
        [pick(predicted_seconds(*row[:3]) for row in ROWS if row[0] == tp) for tp in (1, 2, 4)]
        for pick in (max, min)
    )
    assert slowest[0] < fastest[2]
    assert slowest[1] < fastest[2]
