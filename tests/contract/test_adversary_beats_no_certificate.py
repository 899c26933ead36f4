"""An adversary that knows no bounds, only prices, finds nothing below a plan's lower bound."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.adversary import attack
from benchmarks.random_clusters import mixed_cluster
from benchmarks.random_models import alternating_of, repeated
from planner import planning
from planner.planning import resolved_cluster, resolved_model
from planner.schema.job import Job, Limits
from planner.schema.plan import Plan
from planner.units import GIB
from tests.draws import of_drawn

EVALUATIONS = of_drawn(600, one_of=3)
TWO_NODES = {
    "name": "tight",
    "node_groups": [
        {
            "name": "h100",
            "device": "h100-sxm5-80gb",
            "node_count": 2,
            "devices_per_node": 4,
            "memory_bytes": 24.0 * GIB,
        }
    ],
}
MIXED = mixed_cluster({"h100-sxm5-80gb": 4, "a100-sxm4-40gb": 4}, devices_per_node=4)
MIXTURE: dict[str, Any] = {
    "name": "dense-then-mixture",
    "architecture": "synthetic",
    "hidden_size": 2048,
    "vocabulary_size": 32000,
    "maximum_sequence_length": 8192,
    "runs": [
        {
            "block_count": 2,
            "block": {
                "attention": {
                    "kind": "grouped_query",
                    "head_count": 16,
                    "key_value_head_count": 8,
                    "head_size": 128,
                },
                "feed_forward": {"kind": "dense", "ffn_size": 8192},
            },
        },
        {
            "block_count": 10,
            "block": {
                "attention": {
                    "kind": "grouped_query",
                    "head_count": 16,
                    "key_value_head_count": 8,
                    "head_size": 128,
                },
                "feed_forward": {
                    "kind": "mixture",
                    "expert_count": 8,
                    "experts_per_token": 2,
                    "expert_ffn_size": 2048,
                },
            },
        },
    ],
}
REQUESTS = {
    "equal blocks, tight memory": (repeated(block_count=16, hidden_size=2048), TWO_NODES, 32),
    "windows and full attention in turns": (
        alternating_of(block_count=12, hidden_size=2048),
        TWO_NODES,
        16,
    ),
    "dense blocks, then mixtures": (MIXTURE, TWO_NODES, 32),
    "two kinds of devices": (repeated(block_count=16, hidden_size=2048), MIXED, 32),
}


def _plan(model: dict[str, Any], cluster: dict[str, Any], job: Job) -> Plan:
    found = planning.plan(resolved_model(model), resolved_cluster(cluster), job)
    assert isinstance(found, Plan)
    return found


def _job(batch: int, **limits: Any) -> Job:
    return Job(
        global_batch_size=batch,
        sequence_length=4096,
        limits=Limits(**{"solver_seconds": 10.0, **limits}),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", REQUESTS)
def test_no_strategy_is_found_below_the_lower_bound(name: str) -> None:
    model, cluster, batch = REQUESTS[name]
    plan = _plan(model, cluster, _job(batch))
    found = attack(plan, seed=0, evaluation_count=EVALUATIONS)
    assert found.best is not None
    assert not found.breaks_certificate, found.best.model_dump_json()


@pytest.mark.slow
def test_the_price_of_what_is_found_is_what_estimate_says() -> None:
    model, cluster, batch = REQUESTS["equal blocks, tight memory"]
    plan = _plan(model, cluster, _job(batch))
    found = attack(plan, seed=1, evaluation_count=EVALUATIONS // 2)
    assert found.best is not None
    job = Job.model_validate(plan.job.given)
    priced = planning.estimate(plan.model, plan.cluster, job, found.best).prediction
    assert priced.fits
    assert priced.closed_form_seconds == pytest.approx(found.best_seconds, rel=1e-12)


@pytest.mark.slow
def test_a_false_certificate_is_broken_without_the_plans_help() -> None:
    """The best plan with full checkpointing everywhere is not the best of the whole space."""
    model, cluster, batch = REQUESTS["equal blocks, tight memory"]
    narrow = _plan(model, cluster, _job(batch, activation_checkpointing=("full",)))
    wide = _plan(model, cluster, _job(batch))
    false = wide.model_copy(
        update={
            "strategy": narrow.strategy,
            "prediction": narrow.prediction,
            "certificate": narrow.certificate,
        }
    )
    found = attack(false, seed=0, evaluation_count=3 * EVALUATIONS)
    assert found.breaks_certificate
    assert found.blind_seconds < narrow.certificate.lower_bound_seconds
