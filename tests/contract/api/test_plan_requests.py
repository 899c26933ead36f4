"""POST /v1/plans."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor

from tests.builders import a_cluster, a_model
from tests.contract.api.solving import (
    BROKEN,
    DYING,
    ENDLESS,
    INFEASIBLE,
    REFUSED,
    a_request,
    a_running_solve,
    ended,
    process_ids,
)


def test_a_quick_solve_answers_with_the_plan(client):
    answer = client.post("/v1/plans", json=a_request())

    assert answer.status_code == 201
    plan = answer.json()
    assert plan["status"] == "planned"
    assert plan["job"]["resolved"]["global_batch_size"] == 16
    assert answer.headers["location"] == f"/v1/plans/{plan['id']}"


def test_an_infeasible_job_is_an_answer_and_is_kept(client):
    answer = client.post("/v1/plans", json=a_request(INFEASIBLE))

    assert answer.status_code == 201
    assert answer.json()["status"] == "infeasible"
    assert client.get(f"/v1/plans/{answer.json()['id']}").json() == answer.json()


def test_an_equal_request_is_answered_from_the_store(client):
    """The second answer is the first one, byte for byte, and no second plan is stored."""
    first = client.post("/v1/plans", json=a_request())
    second = client.post("/v1/plans", json=a_request())

    assert second.status_code == 200
    assert second.content == first.content
    assert len(client.get("/v1/plans").json()["items"]) == 1


def test_documents_stand_for_the_same_request_as_their_names(client):
    """A digest is over what was understood, so the spelling does not matter."""
    first = client.post("/v1/plans", json=a_request())
    spelled = a_request(
        model=a_model().model_dump(mode="json"), cluster=a_cluster().model_dump(mode="json")
    )

    assert client.post("/v1/plans", json=spelled).json()["id"] == first.json()["id"]


def test_a_repeated_idempotency_key_gives_the_same_plan(client):
    headers = {"Idempotency-Key": "abc-1"}
    first = client.post("/v1/plans", json=a_request(), headers=headers)
    again = client.post("/v1/plans", json=a_request(), headers=headers)

    assert again.json() == first.json()


def test_an_idempotency_key_cannot_stand_for_two_requests(client):
    headers = {"Idempotency-Key": "abc-2"}
    client.post("/v1/plans", json=a_request(16), headers=headers)
    refused = client.post("/v1/plans", json=a_request(32), headers=headers)

    assert refused.status_code == 422
    assert refused.json()["type"] == "urn:meshwright:problem:idempotency-key-reused"
    assert refused.json()["errors"][0]["field"] == "Idempotency-Key"


def test_a_long_solve_becomes_an_operation(client):
    answer = client.post("/v1/plans", json=a_request(ENDLESS), headers={"Prefer": "wait=0"})

    assert answer.status_code == 202
    operation = answer.json()
    assert operation["state"] == "running"
    assert answer.headers["location"] == f"/v1/operations/{operation['id']}"


def test_equal_requests_share_one_solve(client):
    headers = {"Prefer": "wait=0"}
    first = client.post("/v1/plans", json=a_request(ENDLESS), headers=headers)
    second = client.post("/v1/plans", json=a_request(ENDLESS), headers=headers)

    assert second.json()["id"] == first.json()["id"]


def test_equal_requests_at_the_same_time_share_one_solve(make_client):
    """Two services on one database, four requests to each, all at once."""
    with make_client() as one, make_client() as other, ThreadPoolExecutor(8) as threads:

        def submit(client):
            headers = {"Prefer": "wait=0"}
            return client.post("/v1/plans", json=a_request(ENDLESS), headers=headers)

        answers = list(threads.map(submit, [one, other] * 4))

        assert {answer.status_code for answer in answers} == {202}
        assert len({answer.json()["id"] for answer in answers}) == 1
        assert len(process_ids(one)) + len(process_ids(other)) <= 1


def test_what_only_the_solve_finds_wrong_is_told_like_any_bad_input(client):
    answer = client.post("/v1/plans", json=a_request(REFUSED))

    assert answer.status_code == 422
    assert answer.json()["errors"] == [
        {
            "field": "cluster.node_groups",
            "value": 2,
            "remedy": "plan each alone",
            "problem": "mixes device kinds",
        }
    ]


def test_a_broken_solve_keeps_its_inner_workings_to_itself_and_the_log(client, json_logs):
    answer = client.post("/v1/plans", json=a_request(BROKEN))

    assert answer.status_code == 500
    assert answer.json()["type"] == "urn:meshwright:problem:internal-error"
    assert "secret" not in answer.text
    lines = [json.loads(line) for line in json_logs.readouterr().err.splitlines()]
    (logged,) = [line for line in lines if line["event"] == "solve failed"]
    # with the frames of the process that failed, where the fault is
    assert "in plan_by_batch" in logged["exception"]


def test_a_solver_that_dies_fails_its_own_request_alone(client):
    died = client.post("/v1/plans", json=a_request(DYING))

    assert died.status_code == 503
    assert died.json()["type"] == "urn:meshwright:problem:solver-died"
    assert "signal 9" in died.json()["detail"]
    assert client.post("/v1/plans", json=a_request()).status_code == 201


def test_a_solver_killed_from_outside_fails_its_operation_alone(client):
    operation_id = a_running_solve(client)
    (process_id,) = process_ids(client)

    os.kill(process_id, signal.SIGKILL)

    operation = ended(client, operation_id)
    assert operation.state == "failed"
    assert operation.problem is not None
    assert operation.problem.type == "urn:meshwright:problem:solver-died"
    assert client.post("/v1/plans", json=a_request()).status_code == 201


def test_a_solve_past_the_time_limit_is_ended(make_client):
    with make_client(solve_seconds_limit=0.3) as client:
        answer = client.post("/v1/plans", json=a_request(ENDLESS))

        assert answer.status_code == 504
        assert answer.json()["type"] == "urn:meshwright:problem:solve-time-limit"
        assert "solver_seconds" in answer.json()["detail"]
        assert process_ids(client) == ()


def test_a_failed_request_can_be_made_again(client):
    """Nothing of a failure sticks to the digest or the key."""
    headers = {"Idempotency-Key": "again"}
    first = client.post("/v1/plans", json=a_request(DYING), headers=headers)
    second = client.post("/v1/plans", json=a_request(DYING), headers=headers)

    assert (first.status_code, second.status_code) == (503, 503)


def test_more_solves_than_may_wait_are_refused(make_client):
    """One process and no queue: while it solves, one more may stand in line, and no third."""
    with make_client(queued_solve_limit=0) as client:
        a_running_solve(client)
        headers = {"Prefer": "wait=0"}
        assert client.post("/v1/plans", json=a_request(16), headers=headers).status_code == 202
        refused = client.post("/v1/plans", json=a_request(32), headers=headers)

        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "5"


def test_a_deleted_plan_is_planned_anew(client):
    identifier = client.post("/v1/plans", json=a_request()).json()["id"]
    client.delete(f"/v1/plans/{identifier}")

    assert client.post("/v1/plans", json=a_request()).status_code == 201
