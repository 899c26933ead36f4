"""Keys let in whom they should, to what they should, until they are revoked."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select, update

from api.tables import ApiKeyRow, Base
from tests.contract.api.callers import a_key, bearer, secret_of
from tests.contract.api.minutes import in_one_minute

REFUSED = "urn:meshwright:problem:"


@pytest.fixture
def closed(make_client):
    """A client of a service that asks everybody for a key."""
    with make_client(anonymous_scopes=()) as client:
        yield client


GUARDED = (
    ("GET", "/v1/plans"),
    ("POST", "/v1/plans"),
    ("POST", "/v1/estimates"),
    ("GET", "/v1/models"),
    ("GET", "/v1/keys"),
    ("GET", "/v1/projects"),
    ("POST", "/v1/projects"),
    ("GET", "/v1/audit-events"),
    ("GET", "/v1/caller"),
    ("DELETE", "/v1/plans/x"),
    ("GET", "/v1/operations/x"),
    ("GET", "/v1/runs"),
    ("GET", "/v1/tunings"),
    ("GET", "/v1/agents"),
)


def test_without_a_key_nothing_is_answered(closed):
    for method, path in GUARDED:
        answer = closed.request(method, path)

        assert answer.status_code == 401, path
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert answer.json()["type"] == REFUSED + "unauthenticated"


def test_a_body_is_not_read_for_somebody_unknown(closed):
    answer = closed.post(
        "/v1/plans", content=b"{not json", headers={"Content-Type": "application/json"}
    )

    assert answer.status_code == 401


def test_health_needs_no_key(closed):
    assert [closed.get(path).status_code for path in ("/healthz", "/readyz", "/metrics")] == [
        200,
        200,
        200,
    ]


def test_a_key_says_who_asks(closed, database):
    key = a_key(database, "read", project="team-a", name="nightly")

    assert closed.get("/v1/caller", headers=bearer(key)).json() == {
        "project": "team-a",
        "name": "nightly",
        "scopes": ["read"],
        "key_id": key.id,
    }


def test_a_key_allows_its_scopes_and_no_other(closed, database):
    for scope, allowed in (
        ("read", [200, 403, 403]),
        ("plan", [403, 422, 403]),
        ("admin", [403, 403, 200]),
    ):
        header = bearer(a_key(database, scope))

        answers = [
            closed.get("/v1/plans", headers=header),
            closed.post("/v1/plans", json={}, headers=header),
            closed.get("/v1/keys", headers=header),
        ]

        assert [answer.status_code for answer in answers] == allowed
        (refused, *_) = [answer.json() for answer in answers if answer.status_code == 403]
        assert "needs the scope" in refused["detail"]


def test_what_is_no_key_of_ours_is_refused_even_where_none_is_needed(client):
    for given in ("Bearer mw_aaaaaaaa_" + "x" * 43, "Bearer", "Basic eDp5", "x"):
        assert client.get("/v1/plans", headers={"Authorization": given}).status_code == 401


def test_a_key_with_one_character_changed_is_refused(client, database):
    key = a_key(database).key
    changed = key[:-1] + ("A" if key[-1] != "A" else "B")

    answer = client.get("/v1/plans", headers={"Authorization": f"Bearer {changed}"})

    assert answer.status_code == 401


def test_a_revoked_key_lets_nobody_in_from_then_on(client, database):
    key, admin = a_key(database, "read"), a_key(database, "admin")
    assert client.get("/v1/plans", headers=bearer(key)).status_code == 200

    revoked = client.delete(f"/v1/keys/{key.id}", headers=bearer(admin))

    assert revoked.json()["revoked_at"] is not None
    assert client.get("/v1/plans", headers=bearer(key)).status_code == 401
    assert client.delete(f"/v1/keys/{key.id}", headers=bearer(admin)).status_code == 200


def test_an_expired_key_lets_nobody_in(client, database):
    key = a_key(database, "read")
    with database.writing() as session:
        past = datetime.now(UTC) - timedelta(seconds=1)
        session.execute(update(ApiKeyRow).values(expires_at=past))

    assert client.get("/v1/plans", headers=bearer(key)).status_code == 401


def test_a_made_key_is_shown_once_and_is_nowhere_in_the_database(client, database):
    made = client.post("/v1/keys", json={"name": "ci", "scopes": ["read"]}).json()
    secret = secret_of(made["key"])

    listed = client.get("/v1/keys").json()["items"]

    assert [key["prefix"] for key in listed] == [made["prefix"]]
    assert all("key" not in key for key in listed)
    with database.engine.connect() as connection:
        stored = [
            str(row)
            for table in Base.metadata.sorted_tables
            for row in connection.execute(select(table))
        ]
    assert any(made["prefix"] in row for row in stored)
    assert not any(secret in row for row in stored)


def test_nobody_gives_away_more_than_they_have(closed, database):
    admin = a_key(database, "admin", "read")

    answer = closed.post(
        "/v1/keys", json={"name": "more", "scopes": ["read", "run"]}, headers=bearer(admin)
    )

    assert answer.status_code == 403
    assert "run" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": "", "scopes": ["read"]}, "name"),
        ({"name": "x", "scopes": []}, "scopes"),
        ({"name": "x", "scopes": ["root"]}, "scopes.0"),
        ({"name": "x", "scopes": ["read"], "expires_in_days": 0}, "expires_in_days"),
    ],
)
def test_a_bad_request_for_a_key_names_the_field(client, fields, field):
    answer = client.post("/v1/keys", json=fields)

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field


def test_a_key_that_asks_too_often_is_told_when_to_come_back(make_client, database):
    other = a_key(database, "read")
    with make_client(requests_per_minute=2) as client:

        def answers():
            header = bearer(a_key(database, "read"))
            return [client.get("/v1/models", headers=header) for _ in range(3)]

        first, second, third = in_one_minute(answers)

        assert [answer.status_code for answer in (first, second, third)] == [200, 200, 429]
        assert third.json()["type"] == REFUSED + "rate-limited"
        assert 1 <= int(third.headers["Retry-After"]) <= 60
        assert client.get("/v1/models", headers=bearer(other)).status_code == 200


def test_planning_has_a_limit_of_its_own(make_client, database):
    with make_client(plans_per_minute=1) as client:

        def statuses():
            header = bearer(a_key(database))
            asked = [client.post("/v1/plans", json={}, headers=header) for _ in range(2)]
            read = client.get("/v1/plans", headers=header)
            return [answer.status_code for answer in (*asked, read)]

        assert in_one_minute(statuses) == [422, 429, 200]


@pytest.mark.parametrize(
    "header", [{"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://elsewhere.example"}]
)
def test_another_site_changes_nothing_without_a_key(client, database, header):
    assert client.delete("/v1/plans/x", headers=header).status_code == 403

    with_key = client.delete("/v1/plans/x", headers={**header, **bearer(a_key(database))})

    assert with_key.status_code == 404


def test_a_name_that_is_not_ours_is_not_answered(client):
    """A site may have its own name resolve to 127.0.0.1 (DNS rebinding)."""
    for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example"):
        answer = client.get("/v1/plans", headers={"Host": host})

        assert answer.status_code == 421
        assert "MESHWRIGHT_ALLOWED_HOSTS" in answer.json()["detail"]


def test_names_of_this_machine_are_answered(client):
    for host in ("localhost:8000", "127.0.0.1", "[::1]:8000", "LOCALHOST"):
        assert client.get("/v1/plans", headers={"Host": host}).status_code == 200


def test_keys_are_read_in_pages_the_oldest_first(client, database):
    keys = [a_key(database) for _ in range(3)]

    first = client.get("/v1/keys?limit=2").json()
    rest = client.get("/v1/keys", params={"cursor": first["next_cursor"]}).json()

    assert [key["id"] for key in (*first["items"], *rest["items"])] == [key.id for key in keys]
    assert rest["next_cursor"] is None


def test_keys_that_let_nobody_in_can_be_left_out(client, database):
    usable, revoked, expired = (a_key(database) for _ in range(3))
    client.delete(f"/v1/keys/{revoked.id}")
    with database.writing() as session:
        past = datetime.now(UTC) - timedelta(seconds=1)
        session.execute(update(ApiKeyRow).where(ApiKeyRow.id == expired.id).values(expires_at=past))

    found = client.get("/v1/keys?usable=true").json()["items"]

    assert [key["id"] for key in found] == [usable.id]


def test_a_cursor_of_another_list_or_project_is_refused(client, database):
    theirs = [a_key(database, project="team-a") for _ in range(2)]
    page = client.get("/v1/keys?limit=1", headers=bearer(theirs[0])).json()

    for given in (page["next_cursor"], "bm9uZQ", "!", "w6Q"):
        answer = client.get("/v1/keys", params={"cursor": given})

        assert answer.status_code == 422, given
        assert answer.json()["errors"][0]["field"] == "cursor"


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "ключ \U0001f511", "<script>"])
def test_any_text_may_name_a_key_or_is_refused(client, name):
    body = json.dumps({"name": name, "scopes": ["read"]})

    answer = client.post("/v1/keys", content=body, headers={"Content-Type": "application/json"})

    assert answer.status_code in {201, 422}, answer.text
