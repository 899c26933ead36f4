"""Every error is a problem of RFC 9457 that names field, value and remedy."""

from __future__ import annotations

import gzip
import json

import pytest

from planner.requests import resolution
from tests.contract.api.solvers import a_planner
from tests.contract.api.solving import a_request

# What is refused before any database is asked needs no second one.
pytestmark = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def working_directory(tmp_path, monkeypatch):
    """The directory that relative paths would start from."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def problem(answer):
    """Return the problem in `answer`, which must be one."""
    assert answer.headers["content-type"] == "application/problem+json"
    found = answer.json()
    assert found["status"] == answer.status_code
    assert found["type"].startswith("urn:meshwright:problem:")
    assert found["request_id"] == answer.headers["x-request-id"]
    return found


def test_an_unknown_path_is_a_problem(client):
    found = problem(client.get("/v1/nothing"))

    assert found["status"] == 404
    assert found["instance"] == "/v1/nothing"
    assert found["detail"].startswith("there is no operation at '/v1/nothing'; ")
    (error,) = found["errors"]
    assert (error["field"], error["value"]) == ("path", "/v1/nothing")
    assert "/openapi.json" in error["remedy"]


@pytest.mark.parametrize(
    ("path", "field", "said"),
    [
        ("/v1/plans/plan-0", "plan", "GET /v1/plans lists"),
        ("/v1/runs/run-0", "run", "GET /v1/runs lists"),
        ("/v1/operations/operation-0", "operation", "send the request again"),
    ],
)
def test_what_is_not_there_is_answered_with_where_it_is_found(client, path, field, said):
    found = problem(client.get(path))

    assert found["status"] == 404
    (error,) = found["errors"]
    assert (error["field"], error["value"]) == (field, path.rpartition("/")[2])
    assert said in error["remedy"]


def test_a_browser_is_told_of_an_unknown_path_in_a_page(client):
    answer = client.get("/nothing<b>", headers={"Accept": "text/html,*/*"})

    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert "there is no page &#39;/nothing&lt;b&gt;&#39;" in answer.text
    assert answer.headers["x-request-id"] in answer.text
    assert problem(client.get("/v1/nothing", headers={"Accept": "text/html"}))["status"] == 404


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/plans", {"GET", "HEAD", "POST"}),
        ("/v1/plans/plan-0", {"GET", "HEAD", "DELETE"}),
        ("/v1/plans/compare", {"GET", "HEAD"}),
        ("/v1/estimates", {"POST"}),
    ],
)
def test_a_method_that_is_not_allowed_is_a_problem(client, path, allowed):
    answer = client.put(path, json={})

    assert problem(answer)["status"] == 405
    assert set(answer.headers["allow"].split(", ")) == allowed
    (error,) = answer.json()["errors"]
    assert (error["field"], error["value"]) == ("method", "PUT")
    assert error["remedy"] == f"use {', '.join(sorted(allowed))}"


@pytest.mark.parametrize(
    ("path", "field", "said"),
    [
        ("/v1/models?page=2", "page", "known parameters: none"),
        ("/v1/plans?sort=name", "sort", "known parameters: model, cluster, status"),
        ("/v1/plans?limit=5&limit=6", "limit", "keep one of them"),
        ("/v1/fleet?cluster=a", "cluster", "known parameters: none"),
    ],
)
def test_a_parameter_that_would_not_be_read_is_refused(client, path, field, said):
    answer = client.get(path)

    assert problem(answer)["status"] == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == field
    assert said in error["remedy"]


def test_a_parameter_that_may_be_repeated_is_read_as_often(client):
    """It is the plans that are missing, not the parameters that are wrong."""
    answer = client.get("/v1/plans/compare?plan=plan-0&plan=plan-1")

    assert problem(answer)["status"] == 404


def test_what_asks_without_a_key_is_not_told_of_parameters_first(make_client):
    with make_client(anonymous_scopes=()) as client:
        assert problem(client.get("/v1/plans?page=2"))["status"] == 401


def test_a_compressed_body_is_refused(client):
    headers = {**JSON, "Content-Encoding": "gzip"}
    answer = client.post("/v1/plans", content=gzip.compress(b"{}"), headers=headers)

    assert problem(answer)["status"] == 415
    assert answer.json()["errors"][0]["field"] == "Content-Encoding"


def test_an_unknown_field_or_model_names_what_may_be_meant(make_client):
    job = {"model": "gpt2", "cluster": "8xh100", "job": {"global_batchsize": 8}}
    with make_client(planner=a_planner(resolved_model=resolution.resolved_model)) as client:
        (field,) = client.post("/v1/plans", json=job).json()["errors"]
        misspelt = client.post("/v1/plans", json={**job, "model": "lama-3-8b", "job": {}})
        (model,) = misspelt.json()["errors"]

    assert (field["field"], field["problem"]) == ("job.global_batchsize", "is not a known field")
    assert field["remedy"].startswith("did you mean global_batch_size? ")
    assert model["remedy"].startswith("did you mean llama-3-8b")


def test_a_hidden_character_is_told_in_words(client):
    """Not by the pattern of what is allowed, which has a hundred characters itself."""
    plan_id = client.post("/v1/plans", json=a_request()).json()["id"]
    answer = client.patch(f"/v1/plans/{plan_id}/labels", json={"name": "a\u202eb", "tags": "x"})

    assert problem(answer)["status"] == 422
    name, tags = answer.json()["errors"]
    assert name["problem"] == (
        "has a control or hidden character, or white space where none may be"
    )
    assert tags["problem"] == "must be a list"


@pytest.mark.parametrize("path", ["/v1/plans", "/v1/estimates"])
def test_a_body_above_the_limit_is_refused(make_client, path):
    with make_client(body_bytes_limit=1000) as client:
        answer = client.post(path, content=b" " * 1001, headers=JSON)

        assert problem(answer)["status"] == 413
        assert "1000 B;" in answer.json()["detail"]


def test_a_body_without_a_length_is_refused_as_soon_as_it_is_too_long(make_client):
    """Chunked bodies do not say how long they are."""
    chunks = (b" " * 400 for _ in range(3))
    with make_client(body_bytes_limit=1000) as client:
        assert problem(client.post("/v1/plans", content=chunks, headers=JSON))["status"] == 413


@pytest.mark.parametrize(
    ("sent", "status", "said"),
    [
        (("POST", "/plans/new", {}), 413, "the body is larger than 1000 B"),
        (("GET", "/", {"Host": "elsewhere.example"}), 421, "is not a name of this service"),
        (("GET", "/logout", {}), 405, "a form is sent here; there is no page"),
    ],
)
def test_what_no_page_answered_is_a_page_for_a_browser(make_client, sent, status, said):
    method, path, headers = sent
    browser = {"Accept": "text/html,*/*", **headers}
    content = b"x" * 1001 if method == "POST" else None
    with make_client(body_bytes_limit=1000) as client:
        answer = client.request(method, path, content=content, headers=browser)

    assert answer.status_code == status
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert said in answer.text
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    if status == 405:
        assert answer.headers["allow"] == "POST"


def test_a_body_at_the_limit_is_read(make_client):
    body = json.dumps(a_request()).encode().ljust(1000)
    with make_client(body_bytes_limit=1000) as client:
        assert client.post("/v1/plans", content=body, headers=JSON).status_code in {201, 202}


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-yaml", "multipart/form-data"])
def test_other_media_types_are_refused(client, media_type):
    """A browser asks before it sends JSON to a stranger; it sends plain text without asking."""
    body = json.dumps(a_request())
    answer = client.post("/v1/plans", content=body, headers={"Content-Type": media_type})

    assert problem(answer)["status"] == 415
    assert answer.json()["errors"][0]["value"] == media_type


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "not valid JSON"),
        (b'{"model": "tiny"', "not valid JSON"),
        (b"[1, 2]", "must be a mapping"),
        (b'"tiny"', "must be a mapping"),
        (b"\xff\xfe", "not UTF-8"),
        (b'{"model": "tiny", "cluster": "x", "job": {"a": NaN}}', "must be a finite number"),
        (b'{"model": "tiny", "cluster": "x", "job": {"a": 1e999}}', "must be a finite number"),
        (b'{"model": {"a": "\\ud800"}, "cluster": "x"}', "half of a surrogate pair"),
        (b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}", "nested too deep"),
        (b'{"a": ' + b"[" * 100_000, "nested too deep"),
        (b'{"a": ' + b"9" * 5000 + b"}", "absurd number"),
    ],
)
def test_a_body_that_is_no_document_is_refused(client, body, told):
    answer = client.post("/v1/plans", content=body, headers=JSON)

    assert problem(answer)["status"] == 422
    assert told in answer.json()["detail"]


@pytest.mark.parametrize(
    ("request_fields", "field", "value"),
    [
        (a_request(model="no-such-model"), "model", "no-such-model"),
        (a_request(model=7), "model", 7),
        (a_request(model=""), "model", ""),
        (a_request(model="x" * 201), "model", None),
        (a_request(cluster="8xabacus"), "cluster", "8xabacus"),
        (a_request(cluster=None), "cluster", None),
        (a_request(colour="blue"), "colour", "blue"),
        (a_request(job={"precision": "fp5"}), "job.precision", "fp5"),
        (a_request(job={"framework": {}}), "job.framework", None),
        (a_request(job={"framework": [{}]}), "job.framework", None),
        (a_request(job={"framework": "jax"}), "job.framework", "jax"),
        (a_request(job={"global_batch_size": 0}), "job.global_batch_size", 0),
        (a_request(job={"limits": {"offload": ["disk"]}}), "job.limits.offload.0", "disk"),
        ({"model": "tiny"}, "cluster", None),
    ],
)
def test_a_bad_field_is_named_with_its_value_and_a_remedy(client, request_fields, field, value):
    (error,) = problem(client.post("/v1/plans", json=request_fields))["errors"]

    assert error["field"] == field
    assert error["remedy"]
    assert value is None or error["value"] == value


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../../etc/passwd", "config.json", "file:///etc/passwd", "."]
)
@pytest.mark.parametrize("field", ["model", "cluster"])
def test_a_path_is_never_read(client, working_directory, path, field):
    """Names are looked up among what is known, also where a file of that name exists."""
    (working_directory / "config.json").write_text('{"secret": "content"}')

    answer = client.post("/v1/plans", json=a_request(**{field: path}))

    assert problem(answer)["status"] == 422
    assert "secret" not in answer.text


def test_an_identifier_of_another_shape_is_refused(client):
    assert problem(client.get("/v1/plans/%00"))["status"] == 422


def test_every_answer_has_an_id_and_the_clients_own_is_kept(client):
    assert client.get("/healthz", headers={"X-Request-ID": "mine-1"}).headers["x-request-id"] == (
        "mine-1"
    )
    assert client.get("/healthz", headers={"X-Request-ID": "a b"}).headers["x-request-id"] != "a b"


def test_a_failure_that_nobody_expected_is_a_problem_without_details(make_client):
    def broken_names():
        raise RuntimeError("the secret inner workings")

    with make_client(planner=a_planner(model_names=broken_names)) as client:
        answer = client.get("/v1/models")

    assert problem(answer)["status"] == 500
    assert "secret" not in answer.text
