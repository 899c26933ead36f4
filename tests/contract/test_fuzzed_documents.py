"""Ten thousand broken documents: each gives an answer or one clear error, and none hangs.

Every run of the tests has a few hundred of them, `make test-fuzz` and `make test-full` all.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from benchmarks.fuzz import Outcome, outcomes
from benchmarks.fuzz_corpus import CLUSTERS, MODELS, STRATEGIES, job_fields
from planner import planning
from planner.errors import InputError
from planner.planning import resolved_cluster, resolved_model
from planner.schema.document import parse_fields
from planner.schema.job import Job
from planner.schema.strategy import Strategy
from tests.draws import of_drawn

SEEDS = [pytest.param(seed, marks=[] if seed < 1 else [pytest.mark.full]) for seed in range(10)]
COUNT_OF_SEED = of_drawn(1000, one_of=4)
SECONDS_LIMIT = 20.0


def _shown(defects: list[Outcome]) -> str:
    return "\n".join(f"#{one.index} {one.defect}: {one.documents}"[:1000] for one in defects[:5])


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_broken_requests_are_answered_or_refused_clearly(seed: int) -> None:
    found = list(outcomes(count=COUNT_OF_SEED, seed=seed, seconds_limit=SECONDS_LIMIT))
    defects = [one for one in found if one.defect]
    assert not defects, _shown(defects)
    assert {"refused", "planned", "priced", "infeasible"} <= {one.kind for one in found}


def test_the_documents_that_are_broken_are_whole_before() -> None:
    for model in MODELS:
        resolved_model(model)
    for cluster in CLUSTERS:
        resolved_cluster(cluster)
    for strategy in STRATEGIES:
        Strategy.from_fields(strategy, source="strategy")
    found = planning.plan(
        resolved_model(MODELS[0]),
        resolved_cluster(CLUSTERS[0]),
        Job.from_fields(job_fields(5.0), source="job"),
    )
    assert found.status == "planned"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_size", 0),
        ("hidden_size", -64),
        ("hidden_size", 2**63),
        ("hidden_size", 10**400),
        ("hidden_size", math.nan),
        ("hidden_size", math.inf),
        ("hidden_size", "64"),
        ("hidden_size", True),
        ("hidden_size", None),
        ("num_hidden_layers", 10**9),
        ("num_attention_heads", 7),
        ("num_key_value_heads", 3),
        ("vocab_size", []),
        ("vocab_size", {"a": {"a": {}}}),
    ],
)
def test_an_impossible_size_names_its_field_value_and_remedy(field: str, value: Any) -> None:
    fields = {**MODELS[4], field: value}
    with pytest.raises(InputError) as caught:
        resolved_model(fields)
    assert field in str(caught.value)
    assert caught.value.remedy


def test_thousands_of_nested_lists_are_refused_as_too_deep() -> None:
    with pytest.raises(InputError, match="nested too deep"):
        parse_fields(b'{"runs": ' + b"[" * 5000 + b"]" * 5000 + b"}", source="model")


def test_a_huge_cluster_under_a_short_time_limit_is_answered() -> None:
    """A million devices for a model of four blocks."""
    fields = {**job_fields(0.5), "global_batch_size": 2**20}
    fields["limits"] = {"solver_seconds": 0.5}
    found = planning.plan(
        resolved_model(MODELS[0]),
        resolved_cluster("131072x8xh100-sxm5-80gb"),
        Job.from_fields(fields, source="job"),
    )
    assert found.status in {"planned", "infeasible"}


@pytest.mark.parametrize("text", ["\x00", "\ud800", "\u202egnp.exe"])
def test_an_error_can_be_printed_whatever_the_document_says(text: str) -> None:
    with pytest.raises(InputError) as caught:
        Job.from_fields({"precision": text, text: 1}, source="job")
    assert str(caught.value).isprintable()


def test_an_error_is_short_however_long_a_fields_name_is() -> None:
    with pytest.raises(InputError) as caught:
        Job.from_fields({"x" * 100_000: 1}, source="job")
    assert len(str(caught.value)) < 1000


def test_an_infeasible_job_on_the_largest_cluster_is_answered() -> None:
    groups = [
        {"name": "h", "device": "h100-sxm5-80gb", "node_count": 1000, "devices_per_node": 64},
        {"name": "a", "device": "a100-sxm4-80gb", "node_count": 127, "devices_per_node": 2},
    ]
    found = planning.plan(
        resolved_model(MODELS[0]),
        resolved_cluster({"name": "mixed", "node_groups": groups}),
        Job.from_fields(job_fields(0.25), source="job"),
    )
    assert found.status == "infeasible"


@pytest.mark.parametrize("fields", [{"\ud800": False}, {"_name_or_path": "\ud800"}])
def test_half_of_a_surrogate_pair_is_refused_at_the_door(fields: dict[str, Any]) -> None:
    """No plan that keeps it could be written."""
    with pytest.raises(InputError, match="half of a surrogate pair"):
        resolved_model({**MODELS[4], **fields})
    with pytest.raises(InputError, match="half of a surrogate pair"):
        parse_fields(json.dumps(fields).encode(), source="model")


def test_an_error_names_a_field_of_white_space_alone() -> None:
    with pytest.raises(InputError) as caught:
        Job.from_fields({"\n\r\t": 8}, source="job")
    assert caught.value.field.strip()


def test_an_error_is_short_however_long_the_text_that_it_quotes_is() -> None:
    attention = {"kind": "x" * 100_000, "head_count": 4}
    run = {"block": {**MODELS[0]["runs"][0]["block"], "attention": attention}, "block_count": 4}
    with pytest.raises(InputError) as caught:
        resolved_model({**MODELS[0], "runs": [run]})
    assert len(str(caught.value)) < 1000
