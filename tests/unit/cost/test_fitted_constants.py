"""The page of fitted constants says the numbers that ship."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.cost.attention import _FIRST_GENERATION_RATIO
from planner.cost.compute import _BLOCKED_RATIO
from planner.cost.intervals import ADAPTED_WIDTH, SHARED_RATIO, UNLEARNT_WIDTH, WIDTH
from planner.cost.learnt import APART, DOUBLINGS
from planner.cost.peaks import PEAK_WIDTH, UNLEARNT_PEAK_WIDTH
from planner.hardware import device_profile, stack_profile
from planner.schema.job import Stack
from planner.tuning import peaks
from planner.tuning.spread import DEGREES_OF_FREEDOM

PAGE = Path(__file__).parents[3] / "docs" / "accuracy.md"
TORCH, MEGATRON, DEEPSPEED = map(stack_profile, Stack)
SHIPPED = {
    "`stacks/torch.yaml` | llm-foundry, torchtitan": (
        TORCH.in_situ_efficiency,
        TORCH.in_situ_by_device["a100-sxm4-80gb"],
        TORCH.in_situ_by_device["h100-sxm5-80gb"],
    ),
    "`stacks/megatron.yaml` | NeMo": (MEGATRON.in_situ_efficiency,),
    "`stacks/deepspeed.yaml` | BLOOM": (
        DEEPSPEED.in_situ_efficiency,
        DEEPSPEED.in_situ_by_device["h100-sxm5-80gb"],
    ),
    "a BERT on V100; Qwen3": tuple(
        stack.host_us_per_kernel for stack in (TORCH, MEGATRON, DEEPSPEED)
    ),
    "under two releases": (MEGATRON.counted_host_ratio,),
    "Qwen's fine-tuning": (DEEPSPEED.gather_host_us_per_module,),
    "`devices/` | functional tests": (
        device_profile("a100-sxm4-80gb").host_ratio,
        device_profile("gb200-nvl72").host_ratio,
    ),
    "BLOOM's grids": (_BLOCKED_RATIO,),
    "sweeps of Mist": (TORCH.overlap.contention_ratio,),
    "first flash attention": (_FIRST_GENERATION_RATIO,),
    "reserves beside live tensors": (
        TORCH.allocator_slack_ratio,
        DEEPSPEED.allocator_slack_ratio,
    ),
    "workspaces": (MEGATRON.workspace_gib,),
    "half width of a step": (WIDTH, ADAPTED_WIDTH, UNLEARNT_WIDTH),
    "half width of a peak": (PEAK_WIDTH, UNLEARNT_PEAK_WIDTH),
    "what runs share": (SHARED_RATIO, DOUBLINGS, APART),
    "how far layouts of one job differ": (DEGREES_OF_FREEDOM,),
    "how far peaks of one job's layouts differ": (peaks.DEGREES_OF_FREEDOM, peaks.SCALE),
}


@pytest.mark.parametrize("words", list(SHIPPED))
def test_a_fitted_constant_is_the_one_that_ships(words: str) -> None:
    (line,) = [line for line in PAGE.read_text().splitlines() if words in line and "|" in line]
    stated = line.split("|")[1].replace(",", " ").replace(":", " ").split()
    numbers = [float(word) for word in stated if word.replace(".", "", 1).isdigit()]
    assert all(value in numbers for value in SHIPPED[words]), (numbers, SHIPPED[words])
