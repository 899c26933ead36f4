"""Names, notes and tags of plans: changed over REST, searched, and gone with their plan."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from api.repositories import plan_table
from tests.contract.api.callers import a_key, bearer
from tests.contract.api.solving import PATIENT, a_request, a_stored_plan

LABELS = {"name": "Nightly 8B", "notes": "Résumé:\n\tsecond line", "tags": ["ablation", "8b"]}


def labels_path(client, batch=16):
    """Return where the labels of a stored plan are."""
    return f"/v1/plans/{a_stored_plan(client, batch)}/labels"


def listed(client, **query):
    """Return the global batch sizes of the plans that the list has."""
    items = client.get("/v1/plans", params=query).json()["items"]
    return [item["global_batch_size"] for item in items]


def test_labels_are_changed_field_by_field_and_the_plan_is_not(client):
    path = labels_path(client)
    plan = client.get(path.removesuffix("/labels"))

    assert client.get(path).json() == {"name": None, "notes": "", "tags": []}
    assert client.patch(path, json={**LABELS, "tags": ["8b", "8b"]}).status_code == 200
    changed = client.patch(path, json={"tags": ["ablation", "8b"]})

    assert changed.json() == client.get(path).json() == LABELS
    assert changed.headers["etag"] == client.get(path).headers["etag"]
    (line,) = client.get("/v1/plans").json()["items"]
    assert (line["name"], line["tags"]) == ("Nightly 8B", ["ablation", "8b"])
    after = client.get(path.removesuffix("/labels"))
    assert (after.content, after.headers["etag"]) == (plan.content, plan.headers["etag"])
    cleared = client.patch(path, json={"name": None, "tags": []})
    assert cleared.json() == {**LABELS, "name": None, "tags": []}


def test_a_change_from_labels_that_have_changed_since_is_refused(client):
    path = labels_path(client)
    seen = client.get(path).headers["etag"]

    first = client.patch(path, json={"name": "first"}, headers={"If-Match": f'"x", {seen}'})
    second = client.patch(path, json={"name": "second"}, headers={"If-Match": seen})
    weak = client.patch(
        path, json={"name": "weak"}, headers={"If-Match": f"W/{first.headers['etag']}"}
    )

    assert [first.status_code, second.status_code, weak.status_code] == [200, 412, 412]
    assert second.json()["type"] == "urn:meshwright:problem:changed-meanwhile"
    assert client.get(path).json()["name"] == "first"
    assert client.patch(path, json={}, headers={"If-Match": "*"}).status_code == 200


def test_each_change_has_a_line_in_the_audit_log(client):
    path = labels_path(client)
    for change in (LABELS, LABELS, {}):
        client.patch(path, json=change)

    (event,) = client.get("/v1/audit-events", params={"action": "plan.label"}).json()["items"]

    assert event["subject"] == path.split("/")[3]
    assert event["details"] == {"fields": ["name", "notes", "tags"]}


def test_a_plan_is_deleted_by_its_owner_or_an_administrator(client, database):
    ada, bob = (bearer(a_key(database, "read", "plan", name=name)) for name in ("Ada", "bob"))
    admin = bearer(a_key(database, "read", "plan", "admin", name="root"))
    made = [
        client.post("/v1/plans", json=a_request(batch), headers={**ada, **PATIENT}).json()
        for batch in (16, 32)
    ]
    path, second = (f"/v1/plans/{plan['id']}" for plan in made)
    assert client.post("/v1/plans", json=a_request(16), headers=bob).status_code == 200

    (line,) = client.get("/v1/plans", params={"text": "ada", "limit": 1}, headers=bob).json()[
        "items"
    ]
    refused = client.delete(path, headers=bob)

    assert line["owner"] == "Ada"
    assert refused.status_code == 403
    assert refused.json()["type"] == "urn:meshwright:problem:not-owner"
    assert "belongs to 'Ada'" in refused.json()["detail"]
    assert "by Ada" in client.get("/", headers=bob).text
    page = client.get(path.removeprefix("/v1"), headers=bob).text
    assert "Ada, who asked for this plan, or an administrator can delete it." in page
    assert "/delete" not in page
    assert client.delete(path, headers=ada).status_code == 204
    assert client.delete(second, headers=admin).status_code == 204


def test_what_nobody_owns_anybody_deletes_who_may_plan(client, database):
    path = labels_path(client).removesuffix("/labels")

    assert client.get("/v1/plans").json()["items"][0]["owner"] is None
    headers = bearer(a_key(database, "read", "plan"))
    assert client.delete(path, headers=headers).status_code == 204


def test_who_may_read_alone_changes_nothing(client, database):
    path = labels_path(client)
    headers = bearer(a_key(database, "read"))

    assert client.get(path, headers=headers).status_code == 200
    assert client.patch(path, json=LABELS, headers=headers).status_code == 403
    assert client.patch("/v1/plans/plan-none/labels", json=LABELS).status_code == 404


@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_labels_that_nobody_could_read_are_refused_at_their_field(client):
    path = labels_path(client)
    refused = [
        *({"name": name} for name in ("", " a", "a\0", "a\nb", "a\x1b[2J", "a\u202eb", "a" * 201)),
        *({"tags": [tag]} for tag in ("", "a b", "a,b", "\x85", "a" * 41)),
        {"tags": [str(number) for number in range(21)]},
        *({"notes": notes} for notes in ("\0", "\x1b", "\x9b", "\u2066", "a" * 2001)),
        {"title": "misspelled"},
    ]

    answers = [client.patch(path, json=change) for change in refused]

    assert {answer.status_code for answer in answers} == {422}
    named = [answer.json()["errors"][0]["field"].split("[")[0].split(".")[0] for answer in answers]
    assert named == [next(iter(change)) for change in refused]


def test_plans_are_found_by_words_of_their_labels_and_by_their_tags(client):
    for batch, tags in ((16, ["wide", "50%"]), (32, ["wide-long"]), (64, [])):
        client.patch(labels_path(client, batch), json={"name": f"Run {batch}", "tags": tags})
    client.patch(labels_path(client, 64), json={"notes": "Compare with\nRUN 16"})

    assert listed(client, text="run 16") == [64, 16]
    assert listed(client, text="tiny rUN wide") == [32, 16]
    assert listed(client, tag="wide") == [16]
    assert listed(client, tag="50%", text="run", model="tiny") == [16]
    assert listed(client, tag="%") == []
    assert listed(client, text="0%") == [16]


def test_words_are_searched_in_the_newest_plans_alone(client, monkeypatch):
    monkeypatch.setattr(plan_table, "SEARCHED_PLANS", 2)
    for batch in (16, 32, 64):
        client.patch(labels_path(client, batch), json={"name": "named"})

    assert listed(client, text="named") == [64, 32]
    assert listed(client) == [64, 32, 16]


def test_tags_go_with_their_plan(client, database):
    path = labels_path(client)
    client.patch(path, json=LABELS)

    assert client.delete(path.removesuffix("/labels")).status_code == 204
    with database.reading() as session:
        assert session.scalar(text("SELECT count(*) FROM plan_tags")) == 0
