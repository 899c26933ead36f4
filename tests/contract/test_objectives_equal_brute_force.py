"""Least cost, fewest devices and least memory against trying everything, on small jobs.

For cost and devices every part of a cluster is solved by itself; for memory every strategy of a
tiny job is written out and priced.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from planner.answers.objectives import Attained, attained
from planner.cost.configuration import Choice, Configuration
from planner.cost.step import predict
from planner.ilp.problem import NotFound
from planner.requests.inquiry import Inquiry, Solution
from planner.requests.resolution import Request, cluster_document, model_document, resolved_request
from planner.requests.subclusters import subclusters
from planner.requests.variation import with_cluster, with_job
from planner.schema.job import Objective
from planner.schema.plan import Prediction
from planner.schema.strategy import EdgeChoice, LayerGroup, Stage, Strategy
from planner.space.choices import block_choices, edge_choices
from planner.space.degrees import enumerate_configurations
from tests.builders import a_cluster, a_job, a_model
from tests.contract.test_answers_equal_brute_force import DRAWN, drawn
from tests.oracle import every_cut

BLOCKS = 3
TINY = (
    {"zero_stages": (3,), "activation_checkpointing": ("none", "full"), "offload": ()},
    {"zero_stages": (0, 2), "activation_checkpointing": ("none",), "offload": ()},
    {"zero_stages": (1,), "activation_checkpointing": ("full",), "offload": ("optimizer",)},
)


def answered(request: Request, objective: Objective) -> Attained | NotFound:
    inquiry = Inquiry.within(60.0, share_ratio=1.0)
    return attained(with_job(request, objective=objective), inquiry=inquiry)


def solved_parts(request: Request) -> list[Solution]:
    """The fastest plan of every part of the cluster that has one, each searched in full."""
    whole = request.cluster.resolved
    asked = [Inquiry.within(60.0).ask(with_cluster(request, part)) for part in subclusters(whole)]
    return [answer for answer in asked if isinstance(answer, Solution)]


@pytest.mark.parametrize("seed", DRAWN)
def test_least_cost_is_that_of_the_cheapest_part(seed):
    request = drawn(seed)
    costs = [one.prediction.cost_per_million_tokens for one in solved_parts(request)]
    found = answered(request, Objective.COST)
    if not costs:
        assert isinstance(found, NotFound)
        assert found.proven
        return
    assert isinstance(found, Attained)
    certificate = found.found.certificate
    assert certificate.status == "optimal"
    assert certificate.objective_value == pytest.approx(min(costs), rel=1e-9)
    assert certificate.objective_lower_bound == certificate.objective_value


@pytest.mark.parametrize("seed", DRAWN)
def test_fewest_devices_are_those_of_the_smallest_part_that_fits(seed):
    request = drawn(seed)
    plans = [(p.request.hardware.device_count, p.step_seconds) for p in solved_parts(request)]
    found = answered(request, Objective.DEVICES)
    if not plans:
        assert isinstance(found, NotFound)
        assert found.proven
        return
    assert isinstance(found, Attained)
    count, step = min(plans)
    assert found.found.certificate.status == "optimal"
    assert found.found.certificate.objective_value == count
    assert found.request.cluster.resolved.device_count == count
    assert found.found.step_seconds == pytest.approx(step, rel=1e-9)


def a_tiny_request(limits: dict[str, object], **model: int) -> Request:
    """Three blocks on four devices, without context parallelism, one schedule."""
    run = a_model().runs[0].model_copy(update={"block_count": BLOCKS})
    graph = a_model(**{"runs": (run,), "hidden_size": 512, "vocabulary_size": 4096, **model})
    group = a_cluster().node_groups[0].model_copy(update={"devices_per_node": 4})
    place = a_cluster(node_groups=(group,))
    fixed = {
        "context_parallel_degree": 1,
        "micro_batch_size": 2,
        "pipeline_schedules": ("1f1b",),
    }
    job = a_job(global_batch_size=8, limits={**fixed, **limits})
    return resolved_request(
        model_document(graph.name, graph), cluster_document(place.name, place), job
    )


def every_strategy(request: Request) -> Iterator[Strategy]:
    """Every cut of the chain and every choice of every layer, for all configurations."""
    job = request.job.resolved
    space = enumerate_configurations(request.model.resolved, request.hardware, job)
    blocks, edges = block_choices(job.limits), edge_choices(job.limits)
    for row in space.rows:
        for cuts in every_cut(BLOCKS, row.pipeline_parallel_degree):
            for chosen in itertools.product(blocks, repeat=BLOCKS):
                for ends in itertools.product(edges, repeat=2):
                    yield written_out(row, cuts, chosen, ends)


def written_out(
    row: Configuration, cuts: tuple[int, ...], chosen: tuple[Choice, ...], ends: tuple[Choice, ...]
) -> Strategy:
    stages = tuple(
        Stage(
            stage=index,
            layers=tuple(
                LayerGroup(
                    first_block=block,
                    block_count=1,
                    zero_stage=chosen[block].zero_stage,
                    activation_checkpointing=chosen[block].activation_checkpointing,
                    offload=chosen[block].offload,
                )
                for block in range(first, end)
            ),
        )
        for index, (first, end) in enumerate(itertools.pairwise(cuts))
    )
    embedding, head = (EdgeChoice(zero_stage=end.zero_stage, offload=end.offload) for end in ends)
    return Strategy(
        tensor_parallel_degree=row.tensor_parallel_degree,
        sequence_parallel=row.sequence_parallel,
        pipeline_parallel_degree=row.pipeline_parallel_degree,
        pipeline_schedule=row.pipeline_schedule,
        expert_tensor_parallel_degree=row.expert_tensor_parallel_degree,
        data_parallel_replicate_degree=row.data_parallel_replicate_degree,
        data_parallel_shard_degree=row.data_parallel_shard_degree,
        micro_batch_size=row.micro_batch_size,
        micro_batch_count=row.micro_batch_count,
        stages=stages,
        embedding=embedding,
        head=head,
    )


def peak_bytes(prediction: Prediction) -> float:
    return max(stage.peak_memory_bytes for stage in prediction.stages)


@pytest.mark.parametrize("limits", TINY)
def test_least_memory_is_that_of_the_leanest_strategy_of_all(limits):
    request = a_tiny_request(limits)
    job = request.job.resolved
    priced = [
        predict(request.workload, request.hardware, job, strategy)
        for strategy in every_strategy(request)
    ]
    fitting = [prediction for prediction in priced if prediction.fits]
    assert len(fitting) > 50
    least = min(peak_bytes(prediction) for prediction in fitting)
    found = answered(request, Objective.MEMORY)
    assert isinstance(found, Attained)
    certificate = found.found.certificate
    assert certificate.objective_value is not None
    assert certificate.objective_lower_bound is not None
    assert certificate.objective_lower_bound <= least * (1.0 + 1e-9)
    assert least * (1.0 - 1e-9) <= certificate.objective_value <= least * 1.001
    allowed = certificate.objective_value * (1.0 + 1e-9)
    fastest = min(p.step_seconds.p50 for p in fitting if peak_bytes(p) <= allowed)
    assert found.found.step_seconds == pytest.approx(fastest, rel=1e-9)


@pytest.mark.parametrize("objective", list(Objective))
def test_without_time_nothing_is_found_and_nothing_claimed(objective):
    request = with_job(drawn(0), objective=objective)
    found = attained(request, inquiry=Inquiry.within(0.0, share_ratio=1.0))
    assert isinstance(found, NotFound)
    assert not found.proven


def test_free_devices_are_the_cheapest_and_of_them_the_fastest_are_used():
    """Two nodes of which one costs nothing: it alone is used, whole, as any part is free."""
    request = drawn(0)
    own = request.cluster.resolved.node_groups[0]
    groups = tuple(
        own.model_copy(update={"name": name, "price_per_device_hour": price})
        for name, price in (("rented", 2.0), ("owned", 0.0))
    )
    place = request.cluster.resolved.model_copy(update={"node_groups": groups})
    found = answered(with_cluster(request, place), Objective.COST)
    assert isinstance(found, Attained)
    assert found.found.certificate.objective_value == 0.0
    assert found.found.certificate.status == "optimal"
    free = place.model_copy(update={"node_groups": groups[1:]})
    alone = solved_parts(with_cluster(request, free))
    assert found.found.step_seconds == pytest.approx(min(p.step_seconds for p in alone), rel=1e-9)


def test_a_cutoff_of_time_leaves_a_gap_that_holds():
    """Little time: whatever is found, the bound is no more than the true least."""
    request = drawn(2)
    least = min(p.prediction.cost_per_million_tokens or 0.0 for p in solved_parts(request))
    for seconds in (0.02, 0.05, 0.1, 0.2):
        asked = with_job(request, objective=Objective.COST)
        found = attained(asked, inquiry=Inquiry.within(seconds, share_ratio=1.0))
        if isinstance(found, Attained):
            certificate = found.found.certificate
            assert (certificate.objective_lower_bound or 0.0) <= least * (1.0 + 1e-9)
            assert (certificate.objective_value or 0.0) >= least * (1.0 - 1e-9)
        else:
            assert not found.proven
