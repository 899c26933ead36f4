"""/v1/estimates, /v1/models, /v1/devices."""

from __future__ import annotations

from tests.contract.api.solving import a_request


def test_an_estimate_prices_a_strategy_and_stores_nothing(client):
    strategy = {"tensor_parallel_degree": 4, "data_parallel_degree": 2}

    answer = client.post("/v1/estimates", json=a_request(strategy=strategy))

    assert answer.status_code == 200
    assert answer.json()["prediction"]["step_seconds"]["p50"] == 1.0
    assert client.get("/v1/plans").json()["items"] == []


def test_an_illegal_strategy_is_refused_with_a_remedy(client):
    answer = client.post("/v1/estimates", json=a_request(strategy={"tensor_parallel_degree": 3}))

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["remedy"] == "make the degrees multiply to 8"


def test_an_estimate_needs_a_strategy(client):
    answer = client.post("/v1/estimates", json=a_request())

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "strategy"


def test_known_models_and_devices_are_listed(client):
    assert client.get("/v1/models").json() == {"items": [{"name": "tiny"}]}
    (device,) = client.get("/v1/devices").json()["items"]
    assert device == {
        "name": "h100-sxm5-80gb",
        "memory_bytes": 79.1 * 2**30,
        "devices_per_node": 8,
        "price_per_device_hour": 3.0,
    }
