"""The list of numbers that were chosen on runs is whole, and is what the code has."""

from __future__ import annotations

import re
from pathlib import Path

from planner.cost import attention, compute, intervals, learnt, model_parallel, peaks, products
from planner.hardware import device_profile, stack_profile
from planner.schema.job import Stack
from planner.tuning import peaks as tuned_peaks
from planner.tuning import spread

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"
TORCH, MEGATRON, DEEPSPEED = (
    stack_profile(stack) for stack in (Stack.TORCH, Stack.MEGATRON, Stack.DEEPSPEED)
)
# In the order of the page: what it calls them, and what the code has.
FITTED: tuple[tuple[str, float], ...] = (
    ("0.8", TORCH.in_situ_efficiency),
    ("0.9", TORCH.in_situ_by_device["a100-sxm4-80gb"]),
    ("0.71", TORCH.in_situ_by_device["h100-sxm5-80gb"]),
    ("0.92", MEGATRON.in_situ_efficiency),
    ("0.88", DEEPSPEED.in_situ_efficiency),
    ("0.78", DEEPSPEED.in_situ_by_device["h100-sxm5-80gb"]),
    ("20", TORCH.host_us_per_kernel),
    ("55", MEGATRON.host_us_per_kernel),
    ("50", DEEPSPEED.host_us_per_kernel),
    ("0.5", MEGATRON.counted_host_ratio),
    ("85", DEEPSPEED.gather_host_us_per_module),
    ("1.5", device_profile("a100-sxm4-80gb").host_ratio),
    ("1.2", device_profile("gb200-nvl72").host_ratio),
    ("3.4", compute._BLOCKED_RATIO),
    ("0.2", TORCH.overlap.contention_ratio),
    ("0.3", model_parallel._OVERLAPPED_RATIO),
    ("0.65", products._ROW_SCALED_RATE),
    ("0.72", attention._FIRST_GENERATION_RATIO),
    ("13", 1.0 / attention._HALF_ALIGNED_RATIO),
    ("18", 1.0 / attention._MISALIGNED_RATIO),
    ("0.1", TORCH.allocator_slack_ratio),
    ("0.12", DEEPSPEED.allocator_slack_ratio),
    ("0.1", MEGATRON.workspace_gib),
    ("0.11", peaks.UNLEARNT_PEAK_WIDTH),
    ("0.15", intervals.WIDTH),
    ("0.23", intervals.ADAPTED_WIDTH),
    ("0.24", intervals.UNLEARNT_WIDTH),
    ("0.5", peaks.PEAK_SHARED_RATIO),
    ("0.8", intervals.SHARED_RATIO),
    ("8", learnt.DOUBLINGS),
    ("4", learnt.APART),
    ("1.9", spread.DEGREES_OF_FREEDOM),
    ("1.5", tuned_peaks.DEGREES_OF_FREEDOM),
    ("0.45", tuned_peaks.SCALE),
)
# Numbers in the first column that are none of them: a peak's width is a step's, heads are 8 apart
BESIDE = ("0.15", "8")


def listed_numbers() -> list[str]:
    """The numbers of the first column, in the order of the page."""
    page = PAGE.read_text(encoding="utf-8")
    section = page.split("## What was fitted, and on what")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ")]
    words = " ".join(rows[1:])
    plain = re.sub(r"ZeRO-3|[A-Z]+\d+|8 bits", "", words)
    return re.findall(r"\d+(?:\.\d+)?", plain)


def test_the_page_has_every_fitted_number_and_the_code_has_those_of_the_page() -> None:
    assert sorted(listed_numbers()) == sorted([*(name for name, _ in FITTED), *BESIDE])
    for name, value in FITTED:
        assert round(value, 6) == float(name)


def test_the_page_says_how_many_there_are() -> None:
    assert len(FITTED) == 34
    assert "These\n34 numbers were chosen" in PAGE.read_text(encoding="utf-8")
