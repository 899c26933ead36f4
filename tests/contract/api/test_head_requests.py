"""HEAD answers what GET answers, without its content."""

from __future__ import annotations

import pytest

from tests.contract.api.solving import ENDLESS, a_request

# What is refused or read by the same handler needs no second database.
pytestmark = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)


def told(answer):
    """Return the status and the headers that do not name the request itself."""
    own = {"x-request-id", "date", "set-cookie"}
    return answer.status_code, {
        name: value for name, value in answer.headers.items() if name not in own
    }


@pytest.mark.parametrize(
    "path",
    [
        "/v1/plans",
        "/v1/models",
        "/v1/caller",
        "/healthz",
        "/openapi.json",
        "/plans/new",
        "/static/style.css",
        "/v1/plans/plan-0",
        "/plans/plan-0",
    ],
)
def test_head_is_told_what_get_is_told_without_content(client, path):
    plain = {"Accept-Encoding": "identity"}  # pages hold random tokens, which shrink differently

    head = client.head(path, headers=plain)

    assert told(head) == told(client.get(path, headers=plain))
    assert head.content == b""


def test_head_is_told_of_compression_too(client):
    head = client.head("/openapi.json")

    assert told(head) == told(client.get("/openapi.json"))
    assert head.headers["content-encoding"] == "gzip"


def test_head_of_a_plan_has_its_etag(client):
    made = client.post("/v1/plans", json=a_request())
    path = f"/v1/plans/{made.json()['id']}"

    assert client.head(path).headers["etag"] == made.headers["etag"]
    again = client.head(path, headers={"If-None-Match": made.headers["etag"]})
    assert again.status_code == 304


def test_head_of_a_stream_ends_at_once(client):
    """The operation goes on for ever, and so would its events."""
    path = client.post("/v1/plans", json=a_request(ENDLESS), headers={"Prefer": "wait=0"}).headers[
        "location"
    ]

    answer = client.head(f"{path}/events")

    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    client.delete(path)


def test_head_of_what_only_takes_posts_is_not_allowed(client):
    assert client.head("/v1/estimates").status_code == 405


def test_head_is_counted_with_its_route(client):
    client.head("/v1/plans/plan-0")

    assert 'method="HEAD",route="/v1/plans/{plan_id}"' in client.get("/metrics").text
