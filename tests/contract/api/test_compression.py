"""Answers come compressed to who takes them so."""

from __future__ import annotations

import pytest

from tests.contract.api.solving import a_stored_plan

# What is compressed does not depend on the database.
pytestmark = pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
PLAIN = {"Accept-Encoding": "identity"}


@pytest.mark.parametrize("path", ["/plans/new", "/openapi.json", "/static/plotly.min.js"])
def test_pages_documents_and_scripts_are_compressed(client, path):
    answer, plain = client.get(path), client.get(path, headers=PLAIN)

    assert answer.headers["content-encoding"] == "gzip"
    assert 2 * int(answer.headers["content-length"]) < len(plain.content)
    assert "content-encoding" not in plain.headers
    assert "Accept-Encoding" in plain.headers["vary"]


def test_a_stored_plan_is_the_same_compressed_again_and_plain(client):
    path = f"/v1/plans/{a_stored_plan(client)}"
    first, again, plain = client.get(path), client.get(path), client.get(path, headers=PLAIN)

    assert first.headers["content-encoding"] == again.headers["content-encoding"] == "gzip"
    assert first.content == again.content == plain.content


def test_what_is_private_varies_by_who_asks_too(client):
    varied = client.get(f"/v1/plans/{a_stored_plan(client)}").headers["vary"]

    assert set(varied.split(", ")) == {"Accept-Encoding", "Authorization", "Cookie"}


def test_what_fits_into_one_packet_stays_as_it_is(client):
    assert "content-encoding" not in client.get("/healthz").headers


def test_a_static_file_that_is_known_is_not_sent_again(client):
    first = client.get("/static/style.css")
    again = client.get("/static/style.css", headers={"If-None-Match": first.headers["etag"]})

    assert again.status_code == 304
    assert client.get("/static/nothing.css").status_code == 404
    assert client.get("/static/../settings.py").status_code == 404
