"""GET and DELETE /v1/plans and what lies under it."""

from __future__ import annotations

import pytest

from tests.contract.api.solving import INFEASIBLE, a_request, a_stored_plan


def test_plans_are_listed_newest_first(client):
    identifiers = [a_stored_plan(client, batch) for batch in (16, 32, 64)]

    listed = client.get("/v1/plans").json()

    assert [item["id"] for item in listed["items"]] == identifiers[::-1]
    assert listed["next_cursor"] is None


def test_a_line_of_the_list_says_what_the_plan_gives(client):
    a_stored_plan(client)

    (line,) = client.get("/v1/plans").json()["items"]

    assert line["model"] == "tiny"
    assert line["device_count"] == 8
    assert (line["step_seconds_p10"], line["step_seconds"], line["step_seconds_p90"]) == (
        0.9,
        1,
        1.2,
    )
    assert line["certificate_status"] == "optimal"


def test_a_page_is_made_anew_only_once_the_projects_plans_changed(client):
    made = client.app.state.services.plans._remembered.cache_info
    first = a_stored_plan(client)

    def listed(**query):
        return client.get("/v1/plans", params=query).json()["items"]

    assert listed() == listed()
    assert listed(limit=1) == listed()
    assert made().misses == 2

    client.patch(f"/v1/plans/{first}/labels", json={"name": "The first", "notes": "for Monday"})
    assert [item["name"] for item in listed()] == ["The first"]
    assert len(listed(text="monday")) == 1
    client.patch(f"/v1/plans/{first}/labels", json={"notes": ""})
    assert listed(text="monday") == []

    second = a_stored_plan(client, 32)
    assert [item["id"] for item in listed()] == [second, first]
    client.delete(f"/v1/plans/{first}")
    assert [item["id"] for item in listed()] == [second]


def test_pages_hold_every_plan_once(client):
    identifiers = {a_stored_plan(client, batch) for batch in (16, 32, 64, 128, 256)}
    seen, cursor = [], {}
    while cursor is not None:
        page = client.get("/v1/plans", params={"limit": 2, **cursor}).json()
        seen += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"] and {"cursor": page["next_cursor"]}

    assert len(seen) == 5
    assert set(seen) == identifiers


def test_a_plan_stored_between_two_pages_moves_nothing(client):
    older = [a_stored_plan(client, batch) for batch in (16, 32, 64)]
    first = client.get("/v1/plans", params={"limit": 2}).json()
    a_stored_plan(client, 128)
    second = client.get("/v1/plans", params={"cursor": first["next_cursor"]}).json()

    assert [item["id"] for item in second["items"]] == [older[0]]


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({"model": "tiny"}, 3),
        ({"model": "other"}, 0),
        ({"cluster": "8xh100-sxm5-80gb"}, 3),
        ({"cluster": "none"}, 0),
        ({"status": "infeasible"}, 1),
        ({"status": "planned"}, 2),
        ({"model": "\0"}, 0),
    ],
)
def test_the_list_can_be_filtered(client, query, count):
    for batch in (16, 32, INFEASIBLE):
        a_stored_plan(client, batch)

    assert len(client.get("/v1/plans", params=query).json()["items"]) == count


@pytest.mark.parametrize("cursor", ["x", "%00", "LTE", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5"])
def test_a_cursor_that_is_none_is_refused(client, cursor):
    answer = client.get("/v1/plans", params={"cursor": cursor})

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "cursor"


def test_a_misspelled_filter_is_refused(client):
    answer = client.get("/v1/plans", params={"modell": "tiny"})

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "modell"


def test_a_plan_that_the_client_has_is_not_sent_again(client):
    path = f"/v1/plans/{a_stored_plan(client)}"
    etag = client.get(path).headers["etag"]

    again = client.get(path, headers={"If-None-Match": f'"other", W/{etag}'})

    assert again.status_code == 304
    assert again.content == b""
    assert again.headers["etag"] == etag


def test_a_plan_that_the_client_has_not_is_sent(client):
    path = f"/v1/plans/{a_stored_plan(client)}"

    assert client.get(path, headers={"If-None-Match": '"other"'}).status_code == 200


def test_a_deleted_plan_is_gone(client):
    path = f"/v1/plans/{a_stored_plan(client)}"

    assert client.delete(path).status_code == 204
    assert client.get(path).status_code == 404
    assert client.delete(path).status_code == 404


def test_compared_plans_show_what_differs(client):
    first, second = a_stored_plan(client, 16), a_stored_plan(client, 32)

    comparison = client.get("/v1/plans/compare", params={"plan": [first, second]}).json()

    assert [plan["id"] for plan in comparison["plans"]] == [first, second]
    assert comparison["jobs_differ"] is True
    assert comparison["models_differ"] is False


@pytest.mark.parametrize("count", [0, 1, 7])
def test_a_comparison_takes_two_to_six_plans(client, count):
    plan = a_stored_plan(client)

    assert client.get("/v1/plans/compare", params={"plan": [plan] * count}).status_code == 422


def test_a_comparison_names_the_plan_that_does_not_exist(client):
    plan = a_stored_plan(client)

    answer = client.get("/v1/plans/compare", params={"plan": [plan, "plan-none"]})

    assert answer.status_code == 404
    assert "plan-none" in answer.json()["detail"]


def test_an_infeasible_answer_has_nothing_to_compare(client):
    planned = a_stored_plan(client)
    infeasible = client.post("/v1/plans", json=a_request(INFEASIBLE)).json()["id"]

    answer = client.get("/v1/plans/compare", params={"plan": [planned, infeasible]})

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["value"] == infeasible
