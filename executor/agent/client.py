"""Client: the agent's requests, and what the answers of a server mean for it."""

from __future__ import annotations

from typing import Any, TypeVar

import httpx
from pydantic import ValidationError

from executor.agent.errors import AwayError, RefusedError, StaleError
from planner.errors import shorten
from planner.schema.agent import AgentReport, Enrolment, EnrolmentRequest
from planner.schema.complaints import complaint_words
from planner.schema.document import Part, field_path
from planner.schema.lease import (
    Heartbeat,
    HeartbeatAnswer,
    Lease,
    LeaseResult,
    LogAcknowledgement,
    LogChunk,
    MetricsAcknowledgement,
    MetricsChunk,
    ResultAcknowledgement,
)

Answer = TypeVar("Answer", bound=Part)
_SECONDS = 10.0
_LATER = frozenset({408, 425, 429})


class Client:
    """One agent's connection to its server."""

    def __init__(self, server: str, *, agent_id: str = "", token: str = "") -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.agent_id = agent_id
        self._http = httpx.Client(
            base_url=server.rstrip("/"), headers=headers, timeout=_SECONDS, follow_redirects=False
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def enrol(self, request: EnrolmentRequest) -> Enrolment:
        """Return this agent's own token for a one-time one."""
        return self.document(Enrolment, "POST", "/v1/agents", request)

    def report(self, report: AgentReport) -> None:
        """Replace what the server knows of this node."""
        self._send("PUT", f"/v1/agents/{self.agent_id}", report)

    def lease(self, wait_seconds: float) -> Lease | None:
        """Return a lease, `None` if there was none for `wait_seconds`."""
        path = f"/v1/agents/{self.agent_id}/leases?wait={wait_seconds:g}"
        response = self._send("POST", path, None, seconds=wait_seconds + _SECONDS)
        return None if response.status_code == 204 else _parsed(Lease, response)

    def heartbeat(self, lease_id: str, beat: Heartbeat, *, seconds: float) -> HeartbeatAnswer:
        """Extend a lease; return what to do. An answer later than `seconds` is none."""
        response = self._send("PATCH", f"/v1/leases/{lease_id}", beat, seconds=seconds)
        return _parsed(HeartbeatAnswer, response)

    def log(self, lease_id: str, chunk: LogChunk) -> int:
        """Return up to which byte the server has the log."""
        answer = self.document(LogAcknowledgement, "POST", f"/v1/leases/{lease_id}/logs", chunk)
        return answer.acknowledged_offset

    def metrics(self, lease_id: str, chunk: MetricsChunk) -> int:
        """Return up to which number the server has the rows."""
        path = f"/v1/leases/{lease_id}/metrics"
        return self.document(MetricsAcknowledgement, "POST", path, chunk).acknowledged_sequence

    def result(self, lease_id: str, result: LeaseResult) -> ResultAcknowledgement:
        """Return the lease's state once the result is stored."""
        return self.document(ResultAcknowledgement, "PUT", f"/v1/leases/{lease_id}/result", result)

    def document(self, kind: type[Answer], method: str, path: str, body: Part | None) -> Answer:
        """Return what the server answers, as a document."""
        return _parsed(kind, self._send(method, path, body))

    def _send(
        self, method: str, path: str, body: Part | None, *, seconds: float = _SECONDS
    ) -> httpx.Response:
        """Return the answer if it is a success.

        Raises:
            AwayError: if there is no answer, or one that says to ask later.
            StaleError: if the lease is not this agent's any more.
            RefusedError: if the request will never be answered otherwise.
        """
        content = None if body is None else body.model_dump_json()
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            response = self._http.request(
                method, path, content=content, headers=headers, timeout=seconds
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            text = shorten(str(error) or type(error).__name__)
            raise AwayError(f"the server does not answer: {text}") from None
        if response.is_success:
            return response
        raise _error(response)


def _parsed(kind: type[Answer], response: httpx.Response) -> Answer:
    try:
        return kind.model_validate_json(response.content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place, problem = field_path(first["loc"]), complaint_words(first)[0]
        raise AwayError(
            f"the server's answer is no {kind.__name__} ({place}: {problem}); are agent and "
            "server of one version?"
        ) from None


def _error(response: httpx.Response) -> AwayError | StaleError | RefusedError:
    status, detail = response.status_code, _detail(response)
    if status in _LATER or status >= 500:
        return AwayError(detail, retry_seconds=_retry_seconds(response))
    if status in {404, 409}:
        return StaleError(detail)
    return RefusedError(detail)


def _detail(response: httpx.Response) -> str:
    """Return what a problem says, in one line."""
    try:
        fields: Any = response.json()
        said = fields.get("detail") or fields.get("title")
    except (ValueError, AttributeError):
        said = None
    return shorten(f"{response.status_code} {said or response.reason_phrase}")


def _retry_seconds(response: httpx.Response) -> float | None:
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isdigit() else None
