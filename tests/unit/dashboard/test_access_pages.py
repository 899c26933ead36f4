"""Pages of an administrator over HTTP, and analyses that are cancelled there."""

import re
import time

import pytest
from fastapi.testclient import TestClient

from api.caller import Scope
from api.errors import ForbiddenError
from api.project_schemas import ProjectRequest
from api.schemas import ApiKeyRequest
from api.services.keys import operator
from api.settings import Settings
from tests.applications import an_application
from tests.browser.seeds import a_proven_plan, store
from tests.contract.api.agents_at_work import a_report
from tests.contract.api.processes import until


@pytest.fixture
def app(tmp_path):
    """A service that everybody may administer, with one plan and one process for searches."""
    url = f"sqlite:///{tmp_path}/meshwright.db"
    store(url, a_proven_plan())
    settings = Settings(
        database_url=url,
        allowed_hosts=("testserver",),
        anonymous_scopes=tuple(Scope),
        solver_processes=1,
    )
    app = an_application(settings)
    yield app
    app.state.pool.shutdown(cancel_futures=True)
    app.state.database.close()


@pytest.fixture
def client(app):
    return TestClient(app)


def sent(client: TestClient, path: str, **fields: object):
    """Return what follows a form with these fields and the visit's token."""
    (token,) = set(
        re.findall(r'name="form_token" value="([0-9a-f]{64})"', client.get("/keys").text)
    )
    return client.post(path, data={**fields, "form_token": token})


def test_a_new_key_is_shown_once_and_lets_its_holder_in(client):
    made = sent(client, "/keys", name="ci", scopes=["read"], expires_in_days="30")
    (key,) = re.findall(r"mw_[a-z0-9]{8}_[A-Za-z0-9_-]{43}", made.text)
    assert made.headers["cache-control"] == "no-store"
    caller = client.get("/v1/caller", headers={"Authorization": f"Bearer {key}"}).json()
    assert (caller["name"], caller["scopes"]) == ("ci", ["read"])
    again = client.get("/keys").text
    assert key not in again
    assert key[:11] in again


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"name": " ", "scopes": ["read"]}, "1 to 200 printable characters"),
        ({"name": "x"}, "at least one"),
        ({"name": "x", "scopes": ["read"], "expires_in_days": "soon"}, "whole number from 1"),
        ({"name": "x", "scopes": ["read"], "expires_in_days": "9" * 5000}, "whole number from 1"),
        ({"name": "x", "scopes": ["everything"]}, "at least one"),
    ],
)
def test_a_key_that_cannot_be_is_told_at_its_field(client, fields, told):
    refused = sent(client, "/keys", **fields)
    assert refused.status_code == 422
    assert told in refused.text
    assert client.get("/v1/keys").json()["items"] == []


def test_a_revoked_key_lets_nobody_in_and_the_log_says_who_did_it(client):
    made = client.post("/v1/keys", json={"name": "old", "scopes": ["read"]}).json()
    shown = sent(client, f"/keys/{made['id']}/revoke")
    assert "revoked" in shown.text
    refused = client.get("/v1/caller", headers={"Authorization": f"Bearer {made['key']}"})
    assert refused.status_code == 401
    log = client.get("/audit", params={"action": "key.revoke"}).text
    assert made["id"] in log
    assert "key.create" not in re.findall(r"action=([a-z.]+)\"", log)


def test_who_signed_in_with_a_key_that_was_revoked_is_not_signed_in(app, client):
    made = client.post("/v1/keys", json={"name": "old", "scopes": ["read"]}).json()
    holder = TestClient(app)
    sent(holder, "/login", key=made["key"])
    assert "Sign out" in holder.get("/").text
    client.delete(f"/v1/keys/{made['id']}")
    assert "Sign out" not in holder.get("/").text


def test_the_log_is_read_to_its_end_page_by_page(client):
    for number in range(51):
        client.post("/v1/keys", json={"name": f"key {number}", "scopes": ["read"]})
    first = client.get("/audit").text
    (older,) = re.findall(r'href="(/audit\?cursor=[^"]+)"', first)
    assert first.count("key.create</a>") == 50
    assert client.get(older).text.count("key.create</a>") == 1


def test_a_new_project_has_a_key_that_administers_it_and_nothing_else(client):
    made = sent(client, "/projects", project="vision", holder="Ada")
    (key,) = re.findall(r"mw_[a-z0-9]{8}_[A-Za-z0-9_-]{43}", made.text)
    assert made.headers["cache-control"] == "no-store"
    ada = {"Authorization": f"Bearer {key}"}
    assert client.get("/v1/caller", headers=ada).json()["project"] == "vision"
    assert client.get("/v1/plans", headers=ada).json()["items"] == []
    assert "project.create" in client.get("/audit").text
    assert "Ada" in client.get("/projects").text


def test_an_administrator_of_another_project_sees_its_own_alone_and_makes_none(app, client):
    asked = ProjectRequest(name="vision", holder="Ada")
    key = app.state.services.projects.create(operator(), asked).first_key.key
    ada = {"Authorization": f"Bearer {key}"}
    shown = client.get("/projects", headers=ada).text
    assert "<strong>vision</strong>" in shown
    assert "<strong>default</strong>" not in shown
    assert "Create a project" not in shown
    with pytest.raises(ForbiddenError):
        app.state.services.projects.create(app.state.services.keys.identified(key), asked)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"project": "Vision!", "holder": "Ada"}, "1 to 64 of a-z"),
        ({"project": "vision\n", "holder": ""}, "1 to 200 printable characters"),
        ({"project": "default", "holder": "Ada"}, "is the name of a project that exists"),
    ],
)
def test_a_project_that_cannot_be_is_told_at_its_field(client, fields, told):
    refused = sent(client, "/projects", **fields)
    assert refused.status_code == 422
    assert told in refused.text
    assert client.get("/v1/keys").json()["items"] == []


def test_an_action_that_cannot_be_is_refused(client):
    assert client.get("/audit", params={"action": "a b"}).status_code == 422


def test_who_is_no_administrator_sees_no_link_and_no_keys(app, client):
    key = app.state.services.keys.create(
        operator(), ApiKeyRequest(name="reader", scopes=(Scope.READ,))
    )
    headers = {"Authorization": f"Bearer {key.key}"}
    assert 'href="/keys"' not in client.get("/", headers=headers).text
    assert "Project default, signed in as reader" in client.get("/", headers=headers).text
    for path in ("/keys", "/audit", "/projects"):
        assert client.get(path, headers=headers).status_code == 403


def test_a_cancelled_question_is_unasked_again_and_its_search_ends(app, client):
    """The one process is busy, so that the search cannot end by itself before."""
    pool = app.state.pool
    busy = pool.submit(time.sleep, 600)
    until(lambda: bool(pool.process_ids()))
    path = "/plans/plan-proven"
    assert "Cancel" in sent(client, f"{path}/analyses", kind="reasons").text
    assert pool.waiting_count == 1
    assert "Analyse" in sent(client, f"{path}/analyses/cancel", kind="reasons").text
    assert client.get(f"{path}/analyses").json() == []
    assert pool.waiting_count == 0
    pool.kill(busy)


def test_cancelling_what_nobody_asked_changes_nothing(client):
    answer = sent(client, "/plans/plan-proven/analyses/cancel", kind="heatmap")
    assert answer.status_code == 200
    assert "Solve every pair" in answer.text


def test_a_plan_is_deleted_from_its_page_by_who_may_plan(app, client):
    reader = app.state.services.keys.create(
        operator(), ApiKeyRequest(name="reader", scopes=(Scope.READ,))
    )
    header = {"Authorization": f"Bearer {reader.key}"}
    assert "/plans/plan-proven/delete" not in client.get("/plans/plan-proven", headers=header).text
    assert "/plans/plan-proven/delete" in client.get("/plans/plan-proven").text
    assert client.post("/plans/plan-proven/delete").status_code == 403
    shown = sent(client, "/plans/plan-proven/delete")
    assert "No plans yet" in shown.text
    assert client.get("/v1/plans/plan-proven").status_code == 404
    assert "plan.delete" in client.get("/audit").text


def test_an_agent_is_revoked_from_the_table(client):
    token = client.post("/v1/enrolment-tokens", json={}).json()["token"]
    enrolled = client.post("/v1/agents", json={**a_report("node-x"), "enrolment_token": token})
    path = f"/agents/{enrolled.json()['agent_id']}/revoke"
    assert path in client.get("/agents").text
    assert client.post(path).status_code == 403
    shown = sent(client, path)
    assert "No agents yet" in shown.text
    assert client.get("/v1/agents").json() == {"items": [], "next_cursor": None}
