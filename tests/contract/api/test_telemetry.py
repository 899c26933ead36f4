"""Traces go where OpenTelemetry's variables say, and nowhere where they say nothing."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from fastapi.testclient import TestClient

from api.telemetry import instrument

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture
def collector():
    """A collector on this machine: its address, and what was sent to it."""
    received: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            received.append((self.path, self.rfile.read(length)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    thread.join()
    server.server_close()


def test_nothing_is_traced_where_nothing_is_configured(make_app, monkeypatch):
    monkeypatch.delenv(ENDPOINT, raising=False)
    app = make_app()

    assert instrument(app) is None


def test_requests_are_traced_without_secrets(make_app, monkeypatch, collector):
    pytest.importorskip("opentelemetry.instrumentation.fastapi", reason="no package opentelemetry")
    address, received = collector
    monkeypatch.setenv(ENDPOINT, address)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    app = make_app()

    end = instrument(app)
    with TestClient(app) as client:
        client.get("/v1/plans", headers={"Authorization": "Bearer mw_aaaaaaaa_" + "s" * 43})
        client.get("/v1/plans")
    assert end is not None
    end()

    sent = b"".join(body for _, body in received)
    assert {path for path, _ in received} == {"/v1/traces"}
    assert b"GET /v1/plans" in sent
    assert b"meshwright" in sent
    assert b"s" * 43 not in sent
