"""The OpenAPI description that is committed, and what may not change in it."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from api.app import create_app
from api.settings import Settings
from planner.requests.resolution import resolved_cluster, resolved_model
from tests.contract.api.compatibility import breaking_changes
from tests.contract.api.solvers import a_planner, plan_at_once

COMMITTED = Path(__file__).parents[3] / "docs" / "openapi.json"
PLANS, PLAN = "/v1/plans", "/v1/plans/{plan_id}"


@pytest.fixture(scope="module")
def committed():
    return json.loads(COMMITTED.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def current():
    app = create_app(
        Settings(database_url="sqlite://", allowed_hosts=("testserver",)), planner=a_planner()
    )
    return json.loads(json.dumps(app.openapi()))


def test_nothing_that_clients_rely_on_has_changed(committed, current):
    assert breaking_changes(committed, current) == []


def test_the_committed_description_is_fresh(committed, current):
    """After an addition: python -m api.openapi > docs/openapi.json."""
    assert committed == current


def test_every_operation_says_that_it_answers_problems(current):
    for path, item in current["paths"].items():
        for method, operation in item.items():
            content = operation["responses"]["500"]["content"]
            assert list(content) == ["application/problem+json"], (method, path)


def removed_path(description):
    del description["paths"][PLAN]


def removed_method(description):
    del description["paths"][PLAN]["delete"]


def removed_response(description):
    del description["paths"][PLANS]["post"]["responses"]["202"]


def removed_media_type(description):
    del description["paths"][PLANS]["get"]["responses"]["422"]["content"][
        "application/problem+json"
    ]


def removed_parameter(description):
    listed = description["paths"][PLANS]["get"]
    listed["parameters"] = [item for item in listed["parameters"] if item["name"] != "limit"]


def demanded_parameter(description):
    description["paths"][PLANS]["get"]["parameters"][0]["required"] = True


def removed_field_of_answer(description):
    del description["components"]["schemas"]["PlanSummary"]["properties"]["step_seconds"]


def optional_field_of_answer(description):
    description["components"]["schemas"]["PlanPage"]["required"].remove("next_cursor")


def other_kind_of_field(description):
    fields = description["components"]["schemas"]["PlanSummary"]["properties"]
    fields["device_count"]["type"] = "string"


def demanded_field_of_request(description):
    description["components"]["schemas"]["PlanRequest"]["required"].append("job")


def removed_enum_value(description):
    description["components"]["schemas"]["Precision"]["enum"].remove("fp8")


def renamed_operation(description):
    description["paths"][PLANS]["post"]["operationId"] = "make_plan"


def lower_limit_of_parameter(description):
    (limit,) = [
        item for item in description["paths"][PLANS]["get"]["parameters"] if item["name"] == "limit"
    ]
    limit["schema"]["maximum"] = 50


def higher_floor_of_field(description):
    fields = description["components"]["schemas"]["ApiKeyRequest"]["properties"]
    fields["scopes"]["minItems"] = 2


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (removed_path, "GET /v1/plans/{plan_id} is gone"),
        (removed_method, "DELETE /v1/plans/{plan_id} is gone"),
        (removed_response, "POST /v1/plans no longer answers 202"),
        (removed_media_type, "GET /v1/plans no longer answers 422 as application/problem+json"),
        (removed_parameter, "GET /v1/plans has lost the query parameter limit"),
        (demanded_parameter, "GET /v1/plans demands the query parameter model"),
        (removed_field_of_answer, "PlanSummary.step_seconds is gone"),
        (optional_field_of_answer, "PlanPage.next_cursor is no longer always there"),
        (other_kind_of_field, "PlanSummary.device_count is of another kind"),
        (demanded_field_of_request, "PlanRequest.job is demanded"),
        (removed_enum_value, "Precision no longer takes fp8"),
        (renamed_operation, "POST /v1/plans is called make_plan in generated clients"),
        (
            lower_limit_of_parameter,
            "GET /v1/plans takes less of the query parameter limit: maximum 50",
        ),
        (higher_floor_of_field, "ApiKeyRequest.scopes takes less: minItems 2"),
    ],
)
def test_a_breaking_change_is_seen(current, change, told):
    changed = copy.deepcopy(current)
    change(changed)

    assert told in breaking_changes(current, changed)


def test_an_addition_breaks_nothing(current):
    changed = copy.deepcopy(current)
    changed["paths"]["/v2/plans"] = changed["paths"][PLANS]
    changed["components"]["schemas"]["PlanSummary"]["properties"]["colour"] = {"type": "string"}
    changed["components"]["schemas"]["Precision"]["enum"].append("fp4")

    assert breaking_changes(current, changed) == []


@pytest.mark.parametrize("path", [PLANS, "/v1/estimates", "/v1/keys"])
def test_the_examples_of_the_description_are_accepted(make_client, current, path):
    planner = a_planner(
        plan=plan_at_once, resolved_model=resolved_model, resolved_cluster=resolved_cluster
    )
    body = current["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    examples = current["components"]["schemas"][body["$ref"].rpartition("/")[2]]["examples"]

    with make_client(planner=planner) as client:
        statuses = [client.post(path, json=example).status_code for example in examples]

    assert statuses
    assert set(statuses) <= {200, 201}
