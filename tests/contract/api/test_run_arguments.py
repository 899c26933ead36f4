"""Arguments of a run are held against what the agents' commands accept, before anything runs."""

from __future__ import annotations

import pytest

from tests.contract.api.agents_at_work import (
    AT_WORK,
    AgentAtWork,
    a_gang_plan,
    leased,
    state_of,
)

APPLICATION = AT_WORK
# What is accepted does not depend on the database.
pytestmark = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
STEPS = {"pattern": "[0-9]{1,7}", "required": False}
DATA = {"pattern": "/data/[a-z]+", "required": True}


def asked(client, arguments, **changes):
    """Ask for a run with those arguments."""
    request = {"plan_id": a_gang_plan(client), "arguments": arguments, **changes}
    return client.post("/v1/runs", json=request)


@pytest.mark.parametrize(
    ("arguments", "field", "said"),
    [
        ({"data": "/data/x", "lr": 1}, "arguments.lr", "is not an argument of the command train"),
        ({"data": "/data/x", "steps": "ten"}, "arguments.steps", "does not match [0-9]{1,7}"),
        ({"data": "/data/x", "steps": "10\n"}, "arguments.steps", "does not match"),
        ({"data": "/etc/../data/x"}, "arguments.data", "does not match"),
        ({"data": "/data/x", "steps": True}, "arguments.steps", "does not match"),
        ({"steps": 10}, "arguments.data", "is missing"),
        ({"data": "/data/x", "steps": [1]}, "arguments.steps", "is not text, a number, true or"),
    ],
)
def test_what_the_agents_would_refuse_is_refused_at_once(client, arguments, field, said):
    AgentAtWork.enrolled(client, arguments={"train": {"steps": STEPS, "data": DATA}})

    answer = asked(client, arguments)

    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == field
    assert said in error["problem"]
    assert error["remedy"]
    assert client.get("/v1/runs").json()["items"] == []


def test_what_one_agent_accepts_may_run(client):
    AgentAtWork.enrolled(client, "node-a", arguments={"train": {"data": DATA}})
    AgentAtWork.enrolled(client, "node-b", arguments={"train": {"steps": STEPS}})

    assert asked(client, {"steps": 10}).status_code == 201
    assert asked(client, {"data": "/data/x"}).status_code == 201


@pytest.mark.parametrize("arguments", [{}, {"other": {"steps": STEPS}}])
def test_an_agent_that_does_not_say_what_it_accepts_decides_itself(client, arguments):
    AgentAtWork.enrolled(client, arguments=arguments)

    assert asked(client, {"anything": "at all"}).status_code == 201


def test_a_run_may_wait_for_its_first_agent(client):
    assert asked(client, {"anything": "at all"}).status_code == 201


def test_a_pattern_that_could_be_matched_for_ever_is_left_to_the_agent(client):
    for name, pattern in (("a", "(a+)+b"), ("b", r"(?=x)x")):
        rules = {name: {"pattern": pattern, "required": False}}
        AgentAtWork.enrolled(client, f"node-{name}", arguments={name: rules}, commands=[name])

    assert asked(client, {"a": "a" * 4000}, command="a").status_code == 422
    assert asked(client, {"b": "y"}, command="b").status_code == 201


def test_the_page_says_what_is_accepted_and_what_was_wrong(client):
    AgentAtWork.enrolled(client, arguments={"train": {"steps": STEPS}})
    page = f"/plans/{a_gang_plan(client)}/runs"

    text = client.get(page).text
    token = text.split('name="form_token" value="')[1][:64]
    answer = client.post(page, data={"form_token": token, "arguments": "steps=ten"})

    assert "[0-9]{1,7}" in text
    assert answer.status_code == 422
    assert "does not match" in answer.text


@pytest.mark.parametrize("replan", [0, 1, "no"])
def test_replan_is_a_truth_value(client, replan):
    answer = asked(client, {}, replan=replan)

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "replan"


def test_what_an_agent_refuses_for_good_is_not_started_again(client):
    run_id, first, second = leased(client)

    first.result("failed", reason="steps does not match", refused=True)
    second.result("stopped")

    run = client.get(f"/v1/runs/{run_id}").json()
    assert (run["state"], run["restart_count"]) == ("failed", 0)
    assert "steps does not match" in run["reason"]


def test_what_failed_otherwise_is(client):
    run_id, first, second = leased(client)

    first.result("failed", reason="a port was taken")
    second.result("stopped")

    assert state_of(client, run_id) == "queued"
