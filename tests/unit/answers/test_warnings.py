"""Warnings of answers: where a number rests on what nobody stated or measured, and only there."""

from __future__ import annotations

import pytest

from planner.answers.warnings import answer_warnings
from planner.hardware import cluster_hardware
from planner.importers.models import read_model
from planner.planning import estimate, plan
from planner.requests.resolution import model_document, resolved_cluster
from planner.schema.cluster import Cluster
from planner.schema.job import Calibration
from planner.schema.model import ModelGraph
from planner.schema.plan import Infeasible, Plan, Prediction
from planner.schema.strategy import Strategy
from tests.builders import a_job, a_model, a_prediction
from tests.learnt_runs import a_learnt_run


def warnings_of(
    cluster: Cluster | str,
    *,
    prediction: Prediction | None = None,
    model: ModelGraph | None = None,
    **job: object,
) -> tuple[str, ...]:
    """Return the warnings of a job on a cluster, or on what a short form stands for."""
    if isinstance(cluster, str):
        cluster = resolved_cluster(cluster).resolved
    graph = a_model() if model is None else model
    hardware, own = cluster_hardware(cluster), a_job(**job)
    return answer_warnings(graph, cluster, hardware, own, prediction=prediction)


def test_one_node_of_a_device_that_was_measured_has_none() -> None:
    assert warnings_of("8xh100-sxm5-80gb", prediction=a_prediction()) == ()


def test_the_network_between_nodes_is_assumed_unless_it_is_stated() -> None:
    """An instance's network is its vendor's figure, and a rack of 72 has no other within it."""
    (warning,) = warnings_of("2x8xh100-sxm5-80gb")

    assert warning.startswith("the network between nodes of h100-sxm5-80gb was assumed: 36.5 GB/s")
    assert warnings_of("2xp5.48xlarge") == ()
    assert warnings_of("72xgb200-nvl72") == ()
    assert len(warnings_of("144xgb200-nvl72")) == 1
    stated = resolved_cluster("2x8xh100-sxm5-80gb").resolved
    (group,) = stated.node_groups
    own = group.model_copy(update={"network_bandwidth_bytes_per_second": 25e9})
    assert warnings_of(stated.model_copy(update={"node_groups": (own,)})) == ()


def test_the_network_around_several_kinds_is_assumed() -> None:
    kinds = [
        resolved_cluster(form).resolved.node_groups[0]
        for form in ("8xh100-sxm5-80gb", "8xa100-sxm4-80gb")
    ]
    (warning,) = warnings_of(Cluster(name="both", node_groups=tuple(kinds)))

    assert "between nodes of h100-sxm5-80gb and a100-sxm4-80gb was assumed" in warning


def test_a_device_without_measured_runs_is_named_until_it_is_calibrated() -> None:
    (warning,) = warnings_of("8xmi210-64gb")

    assert warning.startswith("no measured run of mi210-64gb was compared with a prediction")
    ours = Calibration(name="ours", runs=(a_learnt_run(device="mi210-64gb"),))
    assert warnings_of("8xmi210-64gb", calibration=ours) == ()


def test_a_generation_of_attention_that_does_not_run_there_is_said() -> None:
    (warning,) = warnings_of("8xa100-sxm4-80gb", flash_attention_generation=3)

    assert warning == (
        "flash_attention_generation 3 does not run on a100-sxm4-80gb, but on Hopper alone: "
        "attention is priced as torch usually has it there; leave it out, or set 2"
    )
    assert warnings_of("8xh200-sxm5-141gb", flash_attention_generation=3) == ()
    assert warnings_of("8xa100-sxm4-80gb", flash_attention_generation=2) == ()


def test_heads_that_no_fused_attention_takes_are_said() -> None:
    """Keys of 192 and values of 128 before Hopper, under the stack that has Transformer Engine."""
    latent = read_model("deepseek-v3")[1]
    (warning,) = warnings_of("8xa100-sxm4-80gb", model=latent, stack="megatron")

    assert "no fused attention on a100-sxm4-80gb whose keys are wider" in warning
    assert warning.endswith("set fused_attention false")
    written = {"stack": "megatron", "fused_attention": False}
    assert warnings_of("8xa100-sxm4-80gb", model=latent, **written) == ()
    assert warnings_of("8xa100-sxm4-80gb", model=latent) == ()
    assert warnings_of("8xh100-sxm5-80gb", model=latent, stack="megatron") == ()
    assert warnings_of("8xa100-sxm4-80gb", stack="megatron") == ()


@pytest.mark.parametrize(("chance", "said"), [(0.95, 0), (0.9499, 1), (0.1, 1)])
def test_a_chance_of_fitting_below_the_usual_is_said(chance: float, said: int) -> None:
    found = warnings_of("8xh100-sxm5-80gb", prediction=a_prediction(fits_probability=chance))

    assert len(found) == said
    assert all(f"memory is {chance:.1%}, below 95%" in warning for warning in found)


def test_more_ranks_than_cores_are_said() -> None:
    """The profile of CPU ranks was measured on two cores."""
    assert not any("cores" in warning for warning in warnings_of("2xcpu-gloo"))
    assert any("4 ranks share 2 cores" in warning for warning in warnings_of("4xcpu-gloo"))


def test_plans_estimates_and_infeasible_answers_have_them() -> None:
    """On two nodes whose network nobody stated; no length of sequences was given either."""
    model, cluster = model_document("tiny", a_model()), resolved_cluster("2x2xh100-sxm5-80gb")
    job = a_job(sequence_length=None)
    found = plan(model, cluster, job)
    assert isinstance(found, Plan)
    priced = estimate(model, cluster, job, Strategy(data_parallel_shard_degree=4))
    fixed = a_job(sequence_length=None, limits={"pipeline_parallel_degree": {"min": 3, "max": 3}})
    refused = plan(model, cluster, fixed)
    assert isinstance(refused, Infeasible)

    for answer in (found, priced, refused):
        assert any("the network between nodes" in warning for warning in answer.warnings)
    for said in (found.explanation.assumptions, priced.assumptions, refused.assumptions):
        assert "sequence_length 128 was assumed" in said


@pytest.mark.parametrize(
    ("cluster", "program"),
    [("8xtpu-v6e", "XLA"), ("16xtrainium2", "Neuron"), ("8xgaudi3", "Gaudi"), ("8x910b", "CANN")],
)
def test_what_can_only_be_planned_for_says_what_it_is_priced_as(cluster, program):
    first, _measured = warnings_of(cluster)
    assert "can be planned for, and not run on" in first
    assert program in first
