"""Text that no database should have to keep: a zero character, which PostgreSQL refuses to."""

from __future__ import annotations

import pytest

NOWHERE = "plan-none"


@pytest.mark.parametrize(
    "path",
    [
        "/?q=a%00b",
        "/?model=a%00b",
        "/?cluster=%00",
        "/compare?plan=%00",
        "/compare?plan=a%00&config=%00",
        "/login?next=%00",
        "/audit?action=%00",
        "/agents?cursor=AA",
        "/keys?cursor=%00",
        "/projects?cursor=AA",
        "/plans/a%00b",
        "/runs?cursor=%00",
        "/v1/plans?model=a%00b",
        "/v1/plans?cluster=%00",
        "/v1/plans?text=a%00b",
        "/v1/plans?tag=%00",
        "/?tag=%00",
        "/v1/plans/compare?plan=%00&plan=a",
        "/v1/audit-events?subject=a%00b",
        "/v1/audit-events?key_id=%00",
        "/v1/agents?cursor=AA",
        "/v1/keys?cursor=AA",
        "/v1/projects?cursor=AA",
        "/v1/runs?plan_id=%00",
        "/v1/nothing%00",
    ],
)
def test_a_zero_character_in_an_address_is_answered_or_refused(client, path):
    answer = client.get(path)

    assert answer.status_code in {200, 404, 422}, answer.text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/keys", {"name": "a\0b", "scopes": ["read"]}),
        ("/v1/projects", {"name": "vision", "holder": "a\0b"}),
        ("/v1/enrolment-tokens", {"note": "a\0b"}),
        ("/v1/plans", {"model": "a\0b", "cluster": "8xh100-sxm5-80gb"}),
        ("/v1/plans", {"model": {"name": "a\0b"}, "cluster": {"name": "\0"}}),
        ("/v1/runs", {"plan_id": NOWHERE, "command": "a\0b"}),
        ("/v1/runs", {"plan_id": NOWHERE, "arguments": {"a": "a\0b"}}),
        ("/v1/agents", {"enrolment_token": "a\0b"}),
        (f"/v1/plans/{NOWHERE}/analyses", {"kind": "a\0b"}),
    ],
)
def test_a_zero_character_in_a_body_is_answered_or_refused(client, path, body):
    answer = client.post(path, json=body)

    assert answer.status_code in {201, 401, 404, 422}, answer.text
