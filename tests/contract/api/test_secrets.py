"""No secret is in a log, whatever happens."""

from __future__ import annotations

import json
import logging

import structlog

from api import logs
from api.first_key import ensure_key
from api.settings import Settings
from tests.contract.api.callers import a_key, bearer


def test_no_key_cookie_or_password_is_logged(make_client, database, json_logs):
    key = a_key(database)
    with make_client() as client:
        signed_in = client.post("/login", data={"key": key.key})
        client.get("/v1/plans", headers=bearer(key))
        client.get(f"/v1/plans/{key.key}")
        client.get("/v1/plans", headers={"X-Request-ID": key.key})
        client.get("/login", params={"token": "a-token-of-a-link"})
        client.post("/v1/keys", json={"name": key.key, "scopes": ["read"]})
        structlog.get_logger().error("odd", url="postgresql://me:pass-word@host/db")
        logging.getLogger("uvicorn.error").warning("GET /login?token=a-token-of-a-link")
        cookie = client.cookies.get("meshwright_session") or signed_in.headers.get("set-cookie", "")

    written = json_logs.readouterr().err
    lines = [json.loads(line) for line in written.splitlines()]
    assert len(lines) >= 8
    secret = key.key.removeprefix(key.prefix + "_")
    for hidden in (secret, "pass-word", "a-token-of-a-link", *([cookie] if cookie else [])):
        assert hidden not in written
    assert "postgresql://me:[hidden]@host/db" in written
    assert all("request_id" in line for line in lines if line["event"] == "request")


def test_what_a_terminal_would_obey_is_spelled_out_in_the_text_log(make_client, capsys):
    before, root = structlog.get_config(), logging.getLogger()
    handlers, level = root.handlers, root.level
    try:
        logs.configure("text")
        with make_client() as client:
            client.get("/nothing%1B]0;owned%07%00%0Aforged%C2%9B%E2%80%AE")
            logging.getLogger("uvicorn.error").warning("GET /\x1b[2J")
        written = capsys.readouterr().err
    finally:
        structlog.configure(**before)
        root.handlers, root.level = handlers, level

    assert r"/nothing\x1b]0;owned\x07\x00\nforged\x9b\u202e" in written
    assert r"GET /\x1b[2J" in written
    assert not set(written) & set("\x1b\x07\x00\x9b\u202e")


def test_the_first_key_is_made_once_and_stays_out_of_reprs(database):
    settings = Settings(database_url=database.engine.url.render_as_string(hide_password=False))

    first, second = ensure_key(settings), ensure_key(settings)

    assert first is not None
    assert second is None
    assert first.key not in repr(first)
