"""Steps by category: collectives count where nothing hides them, and slow ranks are named."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the executor's tests need torch")

from executor.profile_table import profile_lines, straggler_lines
from executor.step_profile import ProfileSummary, Span, by_category
from tests.builders import a_plan


def _span(name: str, start: float, end: float) -> Span:
    return Span(name=name, start=start, end=end)


def test_collectives_count_where_no_kernel_hides_them() -> None:
    """Compute 0-4, an all-reduce 3-6, an all-gather 5-8, the optimizer 8-9 with a kernel in it."""
    found = by_category(
        computing=[_span("gemm", 0, 3), _span("gemm", 2, 4), _span("adamw", 8.2, 8.6)],
        collectives=[
            _span("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 3, 6),
            _span("ncclDevKernel_AllGather_RING_LL", 5, 8),
        ],
        optimizing=[_span("Optimizer.step#AdamW.step", 8, 9)],
    )
    assert found.compute == 4
    assert found.optimizer == 1
    assert found.exposed == {"all_gather": 3, "all_reduce": 1}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("gloo:reduce_scatter", "reduce_scatter"),
        ("gloo:send", "send and receive"),
        ("ncclDevKernel_SendRecv", "send and receive"),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", "reduce_scatter"),
        ("nccl:barrier", "other"),
    ],
)
def test_a_collective_is_known_by_its_name(name: str, kind: str) -> None:
    found = by_category(computing=[], collectives=[_span(name, 0, 1)], optimizing=[])
    assert found.exposed == {kind: 1}


def _summary(rank: int, *, compute: float, waiting: float, between: float = 0.0) -> ProfileSummary:
    return ProfileSummary(
        rank=rank,
        first_step=3,
        step_count=3,
        step_seconds=compute + waiting,
        compute_seconds=compute,
        optimizer_seconds=0.0,
        exposed_seconds={"all_reduce": waiting},
        host_seconds=0.0,
        between_seconds=between,
    )


def test_the_rank_that_others_wait_for_is_named() -> None:
    ranks = [_summary(rank, compute=1.0, waiting=0.5) for rank in range(3)]
    slow = _summary(3, compute=1.5, waiting=0.0)
    assert list(straggler_lines([*ranks, slow])) == [
        "rank 3 is slow: 1.5 s a step outside of waiting, 1.50 times the ranks' median (1 s)"
    ]
    assert list(straggler_lines(ranks)) == [
        "no rank is slow: 1 s a step outside of waiting (median)"
    ]


def test_a_rank_whose_loader_is_slow_is_named() -> None:
    """Its steps are short: it comes late to them, and the others wait for it there."""
    ranks = [_summary(rank, compute=1.0, waiting=2.0, between=0.1) for rank in range(3)]
    late = _summary(3, compute=1.0, waiting=0.1, between=2.0)
    lines = list(profile_lines(a_plan(), [*ranks, late]))
    assert "between steps, in the script and its loader: 575 ms" in lines
    assert lines[-1] == (
        "rank 3 is slow: 3 s a step outside of waiting, 2.73 times the ranks' median (1.1 s)"
    )


def test_a_run_that_is_too_short_says_that_nothing_was_profiled() -> None:
    (line,) = profile_lines(a_plan(), [])
    assert line.startswith("nothing was profiled: 3 steps are, after 2")
