"""Proxy: stands between an agent and its server, and can spoil what goes through.

It hands on whole requests, so that it can lose, delay, double and disorder them as networks, load
balancers and retrying clients do. What the server acknowledged and the agent heard, it remembers.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_SERVER_SECONDS = 90.0
_HOP_HEADERS = {"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Acknowledged:
    """The highest that the agent was ever told is stored, and how its lease ended, by lease.

    `refused_after` is how long after the last heartbeat that the server took it first refused one,
    in seconds of this process's clock.
    """

    log_bytes: dict[str, int] = field(default_factory=dict)
    metric_rows: dict[str, int] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)
    refused_after: dict[str, float] = field(default_factory=dict)


class Proxy:
    """A proxy on a port of its own; `cut`, `spoil` and `calm` change what it does."""

    def __init__(self, server_port: int, *, seed: int, host: str = "127.0.0.1") -> None:
        self.acknowledged = Acknowledged()
        self.is_cut = False
        self.spoiled_ratio = 0.0
        self._server_port = server_port
        self._random = random.Random(seed)  # noqa: S311 - to be drawn again
        self._older: list[Request] = []
        self._beats: dict[str, float] = {}
        self._lock = threading.Lock()
        self._http = _Server((host, 0), _Handler)
        self._http.proxy = self
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Return where an agent finds its server."""
        host, port = self._http.server_address[:2]
        return f"http://{host!s}:{port}"

    def close(self) -> None:
        """Stop listening."""
        self._http.shutdown()
        self._http.server_close()

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Let nothing through."""
        self.is_cut = True
        try:
            yield
        finally:
            self.is_cut = False

    @contextmanager
    def spoiled(self, ratio: float) -> Iterator[None]:
        """Spoil that share of requests."""
        self.spoiled_ratio = ratio
        try:
            yield
        finally:
            self.spoiled_ratio = 0.0

    def answer(self, request: Request) -> tuple[int, dict[str, str], bytes] | None:
        """Return what the agent hears; nothing if the connection just breaks."""
        if self.is_cut:
            return None
        fault = self._fault()
        if fault == "lost":
            return None
        if fault == "older first":
            self._send_older()
        if fault == "stalled":
            time.sleep(self._random.uniform(0.1, 1.5))
        sent_at = time.monotonic()
        answer = self._forward(request)
        if fault == "doubled":
            answer = self._forward(request)
        self._remember(request)
        self._note_beat(request, answer, sent_at)
        if fault == "answer lost" or self.is_cut or answer is None:
            return None
        self._note(request, answer)
        return answer

    def _fault(self) -> str:
        with self._lock:
            if self._random.random() >= self.spoiled_ratio:
                return "none"
            return self._random.choice(["lost", "stalled", "doubled", "answer lost", "older first"])

    def _send_older(self) -> None:
        """Send an old request again, as one that was overtaken."""
        with self._lock:
            older = self._random.choice(self._older) if self._older else None
        if older is not None:
            self._forward(older)

    def _remember(self, request: Request) -> None:
        """Keep requests that write, to send them again later."""
        if "/v1/leases/" not in request.path:
            return
        with self._lock:
            self._older = [*self._older[-30:], request]

    def _forward(self, request: Request) -> tuple[int, dict[str, str], bytes] | None:
        connection = http.client.HTTPConnection(
            "127.0.0.1", self._server_port, timeout=_SERVER_SECONDS
        )
        try:
            connection.request(request.method, request.path, request.body, request.headers)
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        headers = {k: v for k, v in response.getheaders() if k.lower() not in _HOP_HEADERS}
        return response.status, headers, body

    def _note_beat(
        self, request: Request, answer: tuple[int, dict[str, str], bytes] | None, sent_at: float
    ) -> None:
        """Note when a heartbeat was sent that the server took, or how long after it refused one."""
        if answer is None or request.method != "PATCH":
            return
        lease_id = request.path.rpartition("/")[2]
        with self._lock:
            if answer[0] == 200:
                self._beats[lease_id] = sent_at
            elif answer[0] == 409 and lease_id in self._beats:
                silence = time.monotonic() - self._beats[lease_id]
                self.acknowledged.refused_after.setdefault(lease_id, silence)

    def _note(self, request: Request, answer: tuple[int, dict[str, str], bytes]) -> None:
        parts = request.path.split("/")
        if answer[0] != 200 or len(parts) < 5 or parts[2] != "leases":
            return
        fields: dict[str, Any] = json.loads(answer[2])
        with self._lock:
            for kind, name in (
                (self.acknowledged.log_bytes, "acknowledged_offset"),
                (self.acknowledged.metric_rows, "acknowledged_sequence"),
            ):
                if parts[4:] == ["result"]:
                    self.acknowledged.results[parts[3]] = fields["state"]
                if name in fields:
                    kind[parts[3]] = max(kind.get(parts[3], 0), fields[name])


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    proxy: Proxy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of agents that were killed while they were answered."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _do(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_HEADERS}
        request = Request(
            method=self.command, path=self.path, headers=headers, body=self.rfile.read(length)
        )
        answer = self.server.proxy.answer(request)
        self.close_connection = True
        if answer is None:
            return
        status, answered, body = answer
        self.send_response(status)
        for name, value in answered.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _do  # noqa: N815 - http.server's names

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Print nothing."""
