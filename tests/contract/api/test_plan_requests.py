"""POST /v1/plans."""

from __future__ import annotations

from fastapi.testclient import TestClient

REQUEST = {"model": "tiny", "cluster": "8xh100-sxm5-80gb", "job": {"global_batch_size": 16}}


def test_a_quick_solve_answers_with_the_plan(client: TestClient) -> None:
    answer = client.post("/v1/plans", json=REQUEST)

    assert answer.status_code == 201
    plan = answer.json()
    assert plan["status"] == "planned"
    assert answer.headers["location"] == f"/v1/plans/{plan['id']}"
