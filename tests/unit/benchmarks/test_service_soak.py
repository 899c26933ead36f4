"""The soak counts answers by status, and a service that fails ends it with an error."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from benchmarks import service, service_soak
from benchmarks.service_process import ServiceProcess
from benchmarks.service_soak import Sample, Soaked, soak_line

BAD_MODEL = {"model": "none", "cluster": "none"}
Statuses = Callable[[str, bytes], int]


@contextmanager
def answering(status_of: Statuses) -> Iterator[ServiceProcess]:
    """A service in this process that answers whatever `status_of` says of a path and a body."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            said = json.dumps({"id": "one"}).encode()
            self.send_response(status_of(self.path, body))
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = do_DELETE = answer  # noqa: N815 - names that http.server asks for

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield ServiceProcess(
                process=SimpleNamespace(pid=os.getpid()),  # type: ignore[arg-type]
                url=f"http://127.0.0.1:{server.server_port}",
            )
        finally:
            server.shutdown()
            thread.join()


def well(path: str, body: bytes) -> int:
    return 422 if path == "/v1/plans" and body and json.loads(body) == BAD_MODEL else 200


def failing_metrics(path: str, body: bytes) -> int:
    return 503 if path == "/metrics" else well(path, body)


@pytest.fixture
def soaked_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Statuses], None]:
    """Run the command's soak against a service that answers as told."""
    monkeypatch.setattr(service_soak, "REMEMBERED_REQUESTS", 2)

    def run(status_of: Statuses) -> None:
        with answering(status_of) as process:
            monkeypatch.setattr(service, "_measured_service", lambda: nullcontext(process))
            service.main(["--only", "soak", "--soak-minutes", "0.01", "--soak-pause", "0.02"])

    return run


def test_answers_are_counted_by_status(
    soaked_by: Callable[[Statuses], None], capsys: pytest.CaptureFixture[str]
) -> None:
    soaked_by(well)
    said = capsys.readouterr().out
    assert "Answers by status, from the beginning: 200: " in said
    assert ", 422: " in said


def test_a_failing_service_ends_the_soak_with_an_error(
    soaked_by: Callable[[Statuses], None],
) -> None:
    with pytest.raises(SystemExit, match=r"failed during the soak \(status: answers\): 503: [1-9]"):
        soaked_by(failing_metrics)


def test_every_status_of_500_and_more_is_a_failure() -> None:
    samples = tuple(
        Sample(
            minute=at,
            request_count=10 * at,
            resident_bytes=2**20,
            file_handle_count=4,
            thread_count=2,
        )
        for at in (1, 2)
    )
    soaked = Soaked(samples=samples, answer_counts={500: 1, 200: 12, 429: 3, 504: 2})
    assert soaked.complaint() == (
        "the service failed during the soak (status: answers): 500: 1, 504: 2"
    )
    assert "200: 12, 429: 3, 500: 1, 504: 2." in soak_line(soaked)
    assert Soaked(samples=samples, answer_counts={200: 12, 429: 3}).complaint() is None
