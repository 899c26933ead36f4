"""What the start-up benchmark makes of its measurements."""

from __future__ import annotations

from benchmarks.startup import KINDS, Measured, Start, _plan, _row

MIB = 2**20
ONE = Measured(
    name="zero3, drawn",
    rank_count=2,
    planned=Start(seconds=1.5, peak_bytes=160 * MIB),
    whole=Start(seconds=3.0, peak_bytes=320 * MIB),
)


def test_ratios_are_the_plans_over_the_whole_builds():
    assert ONE.ratio == 0.5
    assert ONE.memory_ratio == 0.5


def test_a_row_has_both_and_their_ratios():
    row = "| zero3, drawn | 2 | 1.50 s | 3.00 s | 0.50 | 160 MiB | 320 MiB | 0.50 |"
    assert _row(ONE) == row


def test_each_kind_has_its_plan():
    strategies = {kind: _plan(kind, 2).strategy for kind in KINDS}
    assert strategies["replicas"].replicate_degree == 2
    assert strategies["zero3"].shard_degree == 2
    assert strategies["tensor"].tensor_parallel_degree == 2
