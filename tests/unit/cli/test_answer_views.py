"""Views of reasons, sizes and fronts: what a person reads holds the facts."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console, RenderableType

from planner.answers.explain import describe
from planner.cli.views.frontier import frontier_view
from planner.cli.views.reasons import reasons_view
from planner.cli.views.sizing import sizing_view
from planner.cost.configuration import Configuration
from planner.schema.frontier import (
    AlternativePlan,
    Frontier,
    FrontierPoint,
    NodeShare,
    SkippedNodes,
)
from planner.schema.reasons import (
    Cause,
    Excess,
    Heatmap,
    HeatmapCell,
    Objection,
    Reasons,
    Rival,
    ShadowPrice,
)
from planner.schema.sizing import DeviceRange, SizedPlan, Sizing, SizingTrial, SizingWish
from planner.schema.strategy import ContextParallelKind, PipelineSchedule
from planner.units import GIB
from tests.builders import a_certificate, a_plan, a_simplicity, a_strategy

H100 = "h100-sxm5-80gb"
OTHER = a_strategy(tensor_parallel_degree=4, data_parallel_shard_degree=1)


def words_of(renderable: RenderableType) -> str:
    """Return what a wide terminal without colours shows, its words one space apart."""
    console = Console(file=io.StringIO(), width=200, highlight=False)
    console.print(renderable)
    return " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]


def a_price(**changes: Any) -> ShadowPrice:
    """One more GiB saves 3 ms of a second."""
    fields = {
        "resource": "device_memory",
        "device": H100,
        "added_bytes": float(GIB),
        "step_seconds": 1.0,
        "step_seconds_with_more": 0.997,
        "saved_seconds": 0.003,
        "proven": True,
    }
    return ShadowPrice(**{**fields, **changes})


def some_reasons(**changes: Any) -> Reasons:
    """A plan that memory binds."""
    fields = {
        "plan_id": "plan-1",
        "summary": "TP 2: 1 s a step.",
        "step_seconds": 1.0,
        "binding_constraints": ("device memory of stage 0",),
        "shadow_prices": (a_price(),),
        "runner_up": None,
        "objections": (),
        "heatmap": None,
        "search_count": 3,
        "planner_version": "0.1.0",
    }
    return Reasons(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, f"1 GiB more device memory on every {H100} would save 3 ms a step (0.30%)"),
        ({"saved_seconds": 0.0}, "would save nothing"),
        ({"saved_seconds": None, "step_seconds_with_more": None}, "was not solved in time"),
        ({"proven": False}, "(0.30%) (not proven)"),
        ({"resource": "host_memory"}, "more host memory"),
    ],
)
def test_price_of_memory_is_said_in_time(changes, words):
    assert words in words_of(reasons_view(some_reasons(shadow_prices=(a_price(**changes),))))


def test_what_binds_and_who_came_second_are_named():
    rival = Rival(
        description="TP 4",
        step_seconds=1.25,
        slower_seconds=0.25,
        slower_ratio=0.25,
        proven=True,
        strategy=a_strategy(),
    )
    words = words_of(reasons_view(some_reasons(runner_up=rival)))
    assert "binds: device memory of stage 0" in words
    assert "runner-up: TP 4: 1.25 s, 250 ms (25.00%) slower" in words


def test_a_plan_without_a_rival_says_so():
    assert "none is likely enough to fit" in words_of(reasons_view(some_reasons()))


def test_objection_names_rules_bytes_causes_and_limits():
    objection = Objection(
        asked="mine.json",
        verdict="slower",
        answer="is 1 s slower",
        rules=("first rule", "second rule"),
        excesses=tuple(
            Excess(
                stage=stage,
                resource="device_memory",
                required_bytes=3.0 * GIB,
                capacity_bytes=1.0 * GIB,
                excess_bytes=2.0 * GIB,
            )
            for stage in (0, 1)
        ),
        causes=(
            Cause(name="bubble", plan_seconds=0.1, other_seconds=0.3, difference_seconds=0.2),
            Cause(name="compute", plan_seconds=0.3, other_seconds=0.2, difference_seconds=-0.1),
        ),
        outside_limits=("zero_stages",),
    )
    words = words_of(reasons_view(some_reasons(objections=(objection,))))
    for part in (
        "why not mine.json? slower",
        "second rule",
        "stage 1: 2 GiB too much device memory",
        "bubble: +200 ms",
        "compute: -100 ms",
        "outside the job's limits: zero_stages",
    ):
        assert part in words


def test_heatmap_has_steps_bytes_and_reasons():
    cells = (
        HeatmapCell(
            row=1, column=1, status="solved", step_seconds=1.0, slower_ratio=0.0, proven=True
        ),
        HeatmapCell(
            row=1, column=2, status="does_not_fit", missing_bytes=2.0 * GIB, reason="needs more"
        ),
        HeatmapCell(row=2, column=1, status="illegal", reason="a rule"),
        HeatmapCell(row=2, column=2, status="out_of_time", reason="late"),
    )
    heatmap = Heatmap(
        row_field="tensor_parallel_degree",
        column_field="micro_batch_size",
        rows=(1, 2),
        columns=(1, 2),
        cells=cells,
    )
    words = words_of(reasons_view(some_reasons(heatmap=heatmap)))
    assert "1 1 s ≥ 2.0 GiB more 2 illegal out of time" in words
    assert "2 x 1: a rule" in words


def a_trial(**changes: Any) -> SizingTrial:
    """Eight devices that miss the deadline."""
    fields = {
        "device": H100,
        "node_count": 1,
        "devices_per_node": 8,
        "device_count": 8,
        "verdict": "misses",
        "limited_by": "deadline",
        "cutoff_seconds": 2.0,
    }
    return SizingTrial(**{**fields, **changes})


def a_sizing(**changes: Any) -> Sizing:
    """Sixteen devices, of which eight would not do."""
    plan = a_plan()
    fields = {
        "status": "found",
        "wish": SizingWish(tokens=1e9, days=2.0, budget=5000.0, devices=(H100,)),
        "model": plan.model,
        "job": plan.job,
        "answer": SizedPlan(
            device=H100,
            node_count=2,
            devices_per_node=8,
            device_count=16,
            description="DP 16",
            step_seconds=1.5,
            step_count=1000,
            days=1.75,
            cost=4321.0,
            peak_memory_bytes=70.0 * GIB,
            model_flop_utilization=0.5,
            strategy=plan.strategy,
            certificate=a_certificate(),
        ),
        "proven": True,
        "next_smaller": a_trial(days=3.5, cost=4400.0),
        "nearest_miss": None,
        "binding": None,
        "ranges": (DeviceRange(device=H100, least_device_count=5, tried=(8, 16), untried=(24,)),),
        "trials": (a_trial(),),
        "search_count": 3,
        "planner_version": "0.1.0",
    }
    return Sizing(**{**fields, **changes})


@pytest.mark.parametrize(
    "part",
    [
        "tiny: 1 G tokens in 2 days for at most $5,000, fewest",
        f"16 devices (2 x 8 {H100}): 1.75 days, $4,321 in all, 1000 steps of 1.5 s, MFU 50.0%",
        "the fewest among the counts tried: each smaller one was solved",
        f"next smaller: 8 {H100}: 3.5 days, $4,400 in all",
        f"8 {H100} misses (deadline) > 2 s > 11.3 > $6,510",
        "batch 16 x 128 tokens, bf16, adamw, torch",
        f"{H100}: at its peak rate it takes 5 devices; 2 counts from there on were tried, 1 were",
    ],
)
def test_size_holds_the_fact(part):
    assert part in words_of(sizing_view(a_sizing()))


def test_size_names_the_fastest_plan_beside_a_simpler_one():
    answer = a_sizing().answer
    said = a_certificate(simplicity=a_simplicity(a_strategy(), fastest_step_seconds=1.485))
    sizing = a_sizing(answer=answer.model_copy(update={"certificate": said, "strategy": OTHER}))
    assert "of this plan: the simplest within 2% of the fastest" in words_of(sizing_view(sizing))
    assert "takes 1.485 s (1.00% less)" in words_of(sizing_view(sizing))


def test_size_that_was_not_proven_says_so():
    assert "not every count was solved in time" in words_of(sizing_view(a_sizing(proven=False)))


def test_cheapest_size_says_what_was_dearer():
    wish = SizingWish(tokens=1e9, days=2.0, devices=(H100,), goal="cheapest")
    assert "each other one was solved and is dearer" in words_of(sizing_view(a_sizing(wish=wish)))


def test_size_tells_counts_without_a_plan_together():
    """The cheapest was sought below what is known, which is no word on the budget."""
    wish = SizingWish(tokens=1e9, days=2.0, budget=5000.0, devices=(H100,), goal="cheapest")
    trials = (
        a_trial(device_count=16, step_seconds=1.5, verdict="meets", limited_by=None),
        a_trial(device_count=24, limited_by="budget", cutoff_seconds=1.25),
        a_trial(device_count=40, limited_by="budget", cutoff_seconds=0.75),
        a_trial(device_count=56, verdict="cannot_run", limited_by="legality"),
    )
    words = words_of(sizing_view(a_sizing(wish=wish, trials=trials)))
    assert f"16 {H100} meets" in words
    assert f"2 counts, 24 to 40 {H100} dearer > 750 ms" in words
    assert f"56 {H100} cannot run (legality)" in words


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        (
            {"binding": "budget", "nearest_miss": a_trial(days=1.5, cost=6000.0)},
            f"the budget binds nearest: 8 {H100}: 1.5 days, $6,000 in all",
        ),
        (
            {"binding": "legality", "nearest_miss": a_trial(verdict="cannot_run", reason="why")},
            f"the legality binds nearest: 8 {H100}: why",
        ),
        ({"binding": "time_limit"}, "the time limit binds"),
    ],
)
def test_size_that_nothing_meets_says_what_binds(changes, part):
    none = {"status": "none", "answer": None, "next_smaller": None}
    assert part in words_of(sizing_view(a_sizing(**none, **changes)))


def test_too_few_devices_at_peak_rates_are_said_to_be_that():
    """8 of them take 30 days at their fastest: in 2 days, 15 times as many would."""
    changes = {
        "status": "none",
        "answer": None,
        "next_smaller": None,
        "trials": (),
        "binding": "deadline",
        "nearest_miss": a_trial(days=30.0, cost=6000.0),
        "wish": SizingWish(tokens=1e9, days=2.0, devices=(H100,), max_devices=8),
        "ranges": (DeviceRange(device=H100, least_device_count=50, tried=(), untried=()),),
    }
    words = words_of(sizing_view(a_sizing(**changes)))
    assert (
        "--max-devices 8 is too few for --days 2: even at peak rates it takes 50 devices" in words
    )
    assert f"--days 30 on 8 {H100}, or about 120 devices at its pace (--max-devices)" in words
    assert "Tried" not in words


def test_a_kind_without_the_precision_says_so():
    kind = DeviceRange(device=H100, least_device_count=None, tried=(), untried=())
    assert f"{H100}: has no rate for bf16" in words_of(sizing_view(a_sizing(ranges=(kind,))))


def a_front() -> Frontier:
    """One point, one alternative, and parts and caps that were left out."""
    plan = a_plan()
    nodes = (NodeShare(name="h", device=H100, node_count=1, devices_per_node=8),)

    def skipped(count: int, cap: float | None, reason: str) -> SkippedNodes:
        return SkippedNodes(
            node_groups=nodes, device_count=count, memory_cap_bytes=cap, reason=reason
        )

    shared = {
        "description": "TP [2]",
        "step_seconds": 1.0,
        "peak_memory_bytes": 10.0 * GIB,
        "cost_per_million_tokens": 2.5,
        "strategy": plan.strategy,
    }
    return Frontier(
        status="partial",
        model=plan.model,
        cluster=plan.cluster,
        job=plan.job,
        points=(
            FrontierPoint(
                **shared,
                node_groups=nodes,
                device_count=8,
                tokens_per_second=100.0,
                memory_cap_bytes=None,
                certificate=a_certificate(status="feasible", gap_ratio=0.05),
            ),
        ),
        alternatives=(AlternativePlan(**shared, rank=1, slower_ratio=0.5, proven=False),),
        other_choices=(
            AlternativePlan(
                **shared,
                rank=1,
                slower_ratio=0.25,
                proven=True,
                differs=("micro-batch size 2 in place of 1", "ZeRO stage 3 in place of 1"),
            ),
        ),
        skipped=(
            skipped(1, None, "infeasible"),
            skipped(4, None, "out_of_time"),
            skipped(8, 5.0 * GIB, "out_of_time"),
        ),
        search_count=9,
        dominated_count=2,
        least_peak_bound_bytes=3.0 * GIB,
        planner_version="0.1.0",
    )


@pytest.mark.parametrize(
    "part",
    [
        "frontier of tiny on 8xh100-sxm5-80gb",
        "8 TP [2] 1 s 10 GiB 2.5 gap 5.0%",
        "1 TP [2] 1 s 50.00% 10 GiB 2.5 not proven",
        "The best, with one of its choices left out",
        "1 micro-batch size 2 in place of 1 1 s 25.00% 10 GiB 2.5 optimal ZeRO stage 3 in place",
        "partial: 9 searches, 2 plans dropped",
        "between these caps there may be other plans",
        "no plan on all devices has a peak under 3 GiB",
        "a part of 1 device has no plan",
        "a part of 4 devices was not solved in time",
        "1 memory cap on other parts was not solved in time",
    ],
)
def test_front_holds_the_fact(part):
    assert part in words_of(frontier_view(a_front()))


def test_a_point_says_what_the_fastest_plan_takes_where_a_simpler_one_stands_there():
    front = a_front()
    said = a_certificate(simplicity=a_simplicity(a_strategy()))
    point = front.points[0].model_copy(update={"certificate": said, "strategy": OTHER})
    words = words_of(frontier_view(front.model_copy(update={"points": (point,)})))
    assert "the fastest takes 990 ms (1.00% less)" in words
    assert "the fastest takes" not in words_of(frontier_view(front))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "one device, 1 micro-batch of 1"),
        ({"tensor_parallel_degree": 4, "sequence_parallel": True}, "TP 4 with sequence parallel"),
        ({"pipeline_parallel_degree": 2}, "PP 2, 1f1b,"),
        (
            {
                "pipeline_parallel_degree": 2,
                "virtual_pipeline_degree": 3,
                "pipeline_schedule": PipelineSchedule.INTERLEAVED,
            },
            "PP 2, interleaved_1f1b of 3,",
        ),
        ({"data_parallel_shard_degree": 8, "expert_parallel_degree": 4}, "DP 8 with EP 4,"),
        (
            {
                "tensor_parallel_degree": 4,
                "expert_parallel_degree": 2,
                "expert_tensor_parallel_degree": 1,
            },
            "TP 4 with EP 2 x expert TP 1,",
        ),
        (
            {
                "context_parallel_degree": 2,
                "context_parallel_kind": ContextParallelKind.ALL_TO_ALL,
            },
            "CP 2, CP by all-to-all,",
        ),
        ({"data_parallel_replicate_degree": 2}, "replicas 2,"),
    ],
)
def test_configuration_is_described_by_what_it_has(fields, words):
    assert words in describe(Configuration(**fields))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"objective_value_with_more": 2.0 * GIB, "saved_value": 1.0 * GIB},
            "would save 1 GiB on the fullest device (25.00%)",
        ),
        ({"saved_value": 0.0}, "would save nothing"),
        ({"saved_value": 0.0, "reason": "none binds"}, "would change nothing: none binds"),
        ({"saved_seconds": None}, "was not solved in time"),
    ],
)
def test_the_price_of_memory_is_said_in_what_the_plan_is_best_at(changes, words):
    lean = some_reasons(
        objective="memory", objective_value=4.0 * GIB, shadow_prices=(a_price(**changes),)
    )
    assert words in words_of(reasons_view(lean))


@pytest.mark.parametrize(
    ("more_devices", "words"),
    [
        (1.0, "runner-up: TP 4: 3 devices, 1 device (50.00%) more"),
        (0.0, "runner-up: TP 4: 2 devices, as the plan, and 250 ms (25.00%) slower a step"),
    ],
)
def test_a_runner_up_is_behind_by_the_objective_then_by_the_step(more_devices, words):
    rival = Rival(
        description="TP 4",
        step_seconds=1.25,
        slower_seconds=0.25,
        slower_ratio=0.25,
        proven=True,
        strategy=a_strategy(),
        objective_value=2.0 + more_devices,
        more_value=more_devices,
        more_ratio=more_devices / 2.0,
    )
    few = some_reasons(
        objective="devices",
        objective_value=2.0,
        runner_up=rival,
        device_count=2,
        cluster_device_count=8,
    )
    shown = words_of(reasons_view(few))
    assert words in shown
    assert "the plan uses 2 of 8 devices" in shown
