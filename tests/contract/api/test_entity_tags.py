"""Who has an answer already is not sent it again, whatever was asked for."""

from __future__ import annotations

import pytest

from tests.contract.api.callers import a_key
from tests.contract.api.solving import a_request

# Tags are made of answers: no database makes a difference.
pytestmark = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)

LISTS = (
    "/v1/plans",
    "/v1/runs",
    "/v1/tunings",
    "/v1/fleet",
    "/v1/agents",
    "/v1/keys",
    "/v1/projects",
    "/v1/audit-events",
    "/v1/models",
    "/v1/devices",
    "/v1/caller",
)


@pytest.mark.parametrize("path", LISTS)
def test_a_list_is_sent_once(client, path):
    first = client.get(path)
    again = client.get(path, headers={"If-None-Match": f'"other", W/{first.headers["etag"]}'})

    assert first.status_code == 200
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert client.get(path, headers={"If-None-Match": '"other"'}).json() == first.json()


def test_a_list_that_has_grown_is_sent_again(client, database):
    before = client.get("/v1/keys").headers["etag"]
    a_key(database)

    answer = client.get("/v1/keys", headers={"If-None-Match": before})

    assert answer.status_code == 200
    assert answer.headers["etag"] != before


def test_an_error_has_no_tag(client):
    answer = client.get("/v1/plans/none", headers={"If-None-Match": "*"})

    assert answer.status_code == 404
    assert "etag" not in answer.headers


def test_the_tag_of_a_plan_is_the_same_however_it_was_come_by(client):
    made = client.post("/v1/plans", json=a_request())
    path = f"/v1/plans/{made.json()['id']}"

    assert client.get(path).headers["etag"] == made.headers["etag"]
    assert client.get(path, headers={"If-None-Match": made.headers["etag"]}).status_code == 304


def test_every_list_is_described_with_its_tag(client):
    paths = client.get("/openapi.json").json()["paths"]

    for path in LISTS:
        described = paths[path]["get"]
        assert "304" in described["responses"], path
        assert "if-none-match" in {each["name"] for each in described["parameters"]}, path
