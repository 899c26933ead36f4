"""A client of a Meshwright service: `pip install 'meshwright[client]'`.

    from meshwright.client import Client

    with Client("http://127.0.0.1:8000") as service:
        answer = service.plan("llama-3-8b", "8xh100-sxm5-80gb", {"global_batch_size": 512})

Answers are the planner's own documents, as `meshwright.plan` returns them. What the service refuses
is a `ServiceError` with its problem details (RFC 9457): which field, what value, what to do.
"""
# ruff: noqa: E402 - what is not installed is named before anything imports it

from __future__ import annotations

from planner.extras import check_extras

check_extras(__name__, __name__)

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import httpx

from planner.errors import MeshwrightError
from planner.schema.job import Job
from planner.schema.plan import Estimate, Infeasible, Plan
from planner.schema.service import Operation, PlanExport, PlanLabels, PlanPage, PlanSummary, Problem
from planner.schema.strategy import Strategy

Given = str | Mapping[str, Any]
_ROUND_SECONDS = 10  # that one request waits for a plan before it asks how far the search is
_PAGE_LENGTH = 100
_ACCEPTED, _ERRORS_FROM = 202, 400


class ServiceError(MeshwrightError):
    """The service refused, or failed: `problem` has what it said, field by field."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        remedies = [f"{each.field}: {each.remedy}" for each in problem.errors]
        super().__init__("; ".join([f"{problem.status} {problem.detail}", *remedies]))


class Client:
    """A service at `url`, asked as whoever holds `key`; without one as anybody.

    Every method raises `ServiceError` where the service answers with a problem, `DocumentError`
    where its documents are of a version that this one does not know, and `httpx.TransportError`
    where it cannot be reached.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        key: str | None = None,
        timeout_seconds: float = 60.0,
    ) -> None:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._round_seconds = min(_ROUND_SECONDS, int(timeout_seconds / 2))
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def plan(
        self,
        model: Given,
        cluster: Given,
        job: Job | Mapping[str, Any] | None = None,
        *,
        on_progress: Callable[[Operation], None] | None = None,
    ) -> Plan | Infeasible:
        """Return the best plan, or what binds and what would help, however long the search takes.

        `on_progress` gets how far the search is, about every ten seconds.
        """
        body = _request(model, cluster, job)
        wait = {"Prefer": f"wait={self._round_seconds}"}
        while True:
            answer = self._ask("POST", "/v1/plans", json=body, headers=wait)
            if answer.status_code != _ACCEPTED:
                return _answer(answer)
            operation = Operation.model_validate_json(answer.content)
            if on_progress is not None:
                on_progress(operation)

    def estimate(
        self,
        model: Given,
        cluster: Given,
        strategy: Strategy | Mapping[str, Any],
        job: Job | Mapping[str, Any] | None = None,
    ) -> Estimate:
        """Return what a strategy of your own costs; nothing is kept."""
        body = {**_request(model, cluster, job), "strategy": _fields(strategy)}
        answer = self._ask("POST", "/v1/estimates", json=body)
        return Estimate.from_fields(answer.json(), source=str(answer.url))

    def read_plan(self, plan_id: str) -> Plan | Infeasible:
        """Return a plan, or an infeasible answer, that the service keeps."""
        return _answer(self._ask("GET", f"/v1/plans/{plan_id}"))

    def plans(
        self, *, text: str | None = None, tag: str | None = None, model: str | None = None
    ) -> Iterator[PlanSummary]:
        """Yield the plans that match, the newest first, as the list has them."""
        given = {"text": text, "tag": tag, "model": model, "limit": _PAGE_LENGTH}
        wanted = {name: value for name, value in given.items() if value is not None}
        while True:
            answer = self._ask("GET", "/v1/plans", params=wanted)
            page = PlanPage.model_validate_json(answer.content)
            yield from page.items
            if page.next_cursor is None:
                return
            wanted["cursor"] = page.next_cursor

    def label(
        self,
        plan_id: str,
        *,
        name: str | None = None,
        notes: str | None = None,
        tags: Sequence[str] | None = None,
    ) -> PlanLabels:
        """Change what is given of a plan's name, notes and tags; return all that it has now."""
        given = {"name": name, "notes": notes, "tags": None if tags is None else list(tags)}
        change = {field: value for field, value in given.items() if value is not None}
        answer = self._ask("PATCH", f"/v1/plans/{plan_id}/labels", json=change)
        return PlanLabels.model_validate_json(answer.content)

    def export(self, plan_id: str, target: str) -> PlanExport:
        """Return the files that a plan becomes for one framework or scheduler, with the losses."""
        answer = self._ask("GET", f"/v1/plans/{plan_id}/exports/{target}")
        return PlanExport.model_validate_json(answer.content)

    def delete_plan(self, plan_id: str) -> None:
        """Have the service forget a plan."""
        self._ask("DELETE", f"/v1/plans/{plan_id}")

    def _ask(self, method: str, path: str, **content: Any) -> httpx.Response:
        answer = self._http.request(method, path, **content)
        if answer.status_code >= _ERRORS_FROM:
            raise ServiceError(_problem(answer))
        return answer


def _request(model: Given, cluster: Given, job: Job | Mapping[str, Any] | None) -> dict[str, Any]:
    request: dict[str, Any] = {"model": model, "cluster": cluster}
    return request if job is None else {**request, "job": _fields(job)}


def _fields(document: Job | Strategy | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(document, Job | Strategy):
        return document.model_dump(mode="json")
    return document


def _answer(answer: httpx.Response) -> Plan | Infeasible:
    fields, source = answer.json(), str(answer.url)
    if fields.get("status") == "infeasible":
        return Infeasible.from_fields(fields, source=source)
    return Plan.from_fields(fields, source=source)


def _problem(answer: httpx.Response) -> Problem:
    """Return what the service said, or that something before it answered in its place."""
    if answer.headers.get("content-type", "").startswith("application/problem+json"):
        return Problem.model_validate_json(answer.content)
    return Problem(
        type="about:blank",
        title=answer.reason_phrase,
        status=answer.status_code,
        detail=f"{answer.url} did not answer as a Meshwright service does",
    )
