"""The service's error tree, and the one place that decides HTTP statuses.

    MeshwrightError (planner.errors)
    ├── SolveError                    a solve that gave no answer, of four kinds (planner.errors)
    │   └── SolveAbandonedError       the service that ran it is gone
    ├── InputError
    │   ├── UnsupportedMediaTypeError a body that is not JSON, or compressed
    │   ├── QueryError                a parameter of the address that would not be read
    │   ├── NoStrategyError           an infeasible answer where a plan is needed
    │   └── ProjectExistsError        a name that a project has already
    └── ServiceError
        ├── NotFoundError             no such plan or operation
        ├── UnauthenticatedError      no key, or one that is no good
        ├── ForbiddenError            a key without the scope that is needed
        ├── NotOwnerError             somebody else's plan, which only they or an admin delete
        ├── ForeignSiteError          a request that another site sent through a browser
        ├── RateLimitError            a key asked too often
        ├── KeyReusedError            an Idempotency-Key that stood for another request
        ├── ChangedMeanwhileError     a change to what is no longer as it was read
        ├── AlreadyFinishedError      an operation or run that can no longer be cancelled
        ├── BusyError                 too many solves are waiting
        ├── NotReadyError             the database is not reachable or not migrated
        ├── AgentTokenError           a token that no agent has
        ├── OtherAgentError           a path that names another agent than the token does
        ├── LeaseError                what is written under a lease does not hold
        │   ├── StaleLeaseError       its epoch has passed, or it is over
        │   ├── NotLaunchedError      ranks were started before all agents were ready
        │   └── ResultConflictError   it has another result already
        ├── TuningStateError          a tuning that cannot be cancelled, or resumed, any more
        └── FailedSolveError          a solve that failed before; it carries the problem of then

Everything becomes a problem of RFC 9457; a problem can also be kept and shown later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, JsonValue
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from planner.errors import (
    DaskLostError,
    InputError,
    MeshwrightError,
    SolveCancelledError,
    SolveError,
    SolverDiedError,
    SolveTimeLimitError,
    shorten,
)
from planner.schema.complaints import complaint_words
from planner.schema.document import field_path, meant
from planner.schema.service import Problem, ProblemField
from planner.units import format_bytes

PROBLEM_TYPE_PREFIX = "urn:meshwright:problem:"


class ServiceError(MeshwrightError):
    """Anything that the service itself refuses or fails at."""


class NotFoundError(ServiceError):
    """There is no such thing under the name given."""

    def __init__(self, kind: str, identifier: str) -> None:
        self.kind = kind
        self.identifier = identifier
        super().__init__(f"there is no {kind} {shorten(identifier)!r}")

    @property
    def remedy(self) -> str:
        """Return where those are named that there are."""
        return _NAMED_AT.get(self.kind, "check what it is called: names are exact")


class UnsupportedMediaTypeError(InputError):
    """The body is of another kind than JSON, or coded; `header` says so."""

    def __init__(self, value: str, *, header: str, remedy: str) -> None:
        super().__init__("is not what is read here", field=header, value=value, remedy=remedy)


class QueryError(InputError):
    """A parameter of the address is none of the operation's, or is given twice."""


class NoStrategyError(InputError):
    """An infeasible answer was named where a plan is needed."""

    def __init__(self, plan_id: str) -> None:
        super().__init__(
            "is an infeasible answer: it has no strategy",
            field="plan",
            value=plan_id,
            remedy="read what would help in it, or name another plan",
        )


class ProjectExistsError(InputError):
    """A project of that name exists; who is in it decides who else may be."""

    def __init__(self, name: str) -> None:
        super().__init__(
            "is the name of a project that exists",
            field="name",
            value=name,
            remedy="choose another name, or ask an administrator of that project for a key",
        )


class UnauthenticatedError(ServiceError):
    """Nobody is known to ask; `challenge` says how to (RFC 6750)."""

    challenge = 'Bearer realm="meshwright"'

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem}; send a key as `Authorization: Bearer KEY`")


class ForbiddenError(ServiceError):
    """The caller is known, and may not do this."""

    def __init__(self, scope: str, *, caller: str) -> None:
        self.scope = scope
        super().__init__(
            f"this needs the scope {scope}, which {shorten(caller)!r} does not have; "
            "use a key that has it"
        )


class NotOwnerError(ServiceError):
    """The caller may delete its own, and this is another's."""

    def __init__(self, kind: str, identifier: str, *, owner: str) -> None:
        super().__init__(
            f"{kind} {shorten(identifier)!r} belongs to {shorten(owner)!r}; ask its owner to "
            "delete it, or use a key with the scope admin"
        )


class ForeignSiteError(ServiceError):
    """Another site sent the request through the user's browser."""

    def __init__(self) -> None:
        super().__init__("this was sent by another site, or by a page that is too old; reload it")


class RateLimitError(ServiceError):
    """A key, or an address without one, asked too often."""

    def __init__(self, kind: str, *, per_minute: int, retry_seconds: int) -> None:
        self.retry_seconds = retry_seconds
        super().__init__(f"more than {per_minute} {kind} a minute; try again in {retry_seconds} s")


class ChangedMeanwhileError(ServiceError):
    """What was to be changed is no longer as `If-Match` says that it was read."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the {what} were changed after they were read; read them again")


class KeyReusedError(ServiceError):
    """An `Idempotency-Key` stands for another request already."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"Idempotency-Key {key!r} was first used for a different request")


class AlreadyFinishedError(ServiceError):
    """The operation or run ended before it could be cancelled."""

    def __init__(self, what: str, state: str) -> None:
        super().__init__(f"{what} has already {state}")


class BusyError(ServiceError):
    """More solves wait than the service accepts."""

    def __init__(self, waiting_count: int) -> None:
        super().__init__(f"{waiting_count} solves are waiting; try again later")


class NotReadyError(ServiceError):
    """The database cannot be used."""


class AgentTokenError(ServiceError):
    """The token is no agent's, or no enrolment token that may still be used."""


class OtherAgentError(ServiceError):
    """The path names another agent than the token."""

    def __init__(self, agent_id: str) -> None:
        super().__init__(f"the token is not that of agent {shorten(agent_id)!r}")


class LeaseError(ServiceError):
    """What an agent writes under a lease does not hold."""


class StaleLeaseError(LeaseError):
    """The lease is lost: its epoch has passed, or it is over. Nothing was written."""


class NotLaunchedError(LeaseError):
    """An agent reports running ranks before it was told to launch."""


class ResultConflictError(LeaseError):
    """The lease has another result already."""


class TuningStateError(ServiceError):
    """The tuning is in a state in which it cannot be cancelled, or resumed."""

    def __init__(self, tuning_id: str, state: str, *, asked: str) -> None:
        super().__init__(f"tuning {tuning_id} is {state}: it cannot be {asked}")


class FailedSolveError(ServiceError):
    """A solve failed; what was wrong is known as a problem already."""

    def __init__(self, operation_id: str, problem: Problem) -> None:
        self.problem = problem
        super().__init__(f"operation {operation_id} failed: {problem.detail}")


class SolveAbandonedError(SolveError):
    """The service that ran the solve stopped."""


_STATUSES: tuple[tuple[type[Exception], HTTPStatus, str], ...] = (
    (NotFoundError, HTTPStatus.NOT_FOUND, "not-found"),
    (UnauthenticatedError, HTTPStatus.UNAUTHORIZED, "unauthenticated"),
    (ForbiddenError, HTTPStatus.FORBIDDEN, "forbidden"),
    (NotOwnerError, HTTPStatus.FORBIDDEN, "not-owner"),
    (ForeignSiteError, HTTPStatus.FORBIDDEN, "foreign-site"),
    (RateLimitError, HTTPStatus.TOO_MANY_REQUESTS, "rate-limited"),
    (ChangedMeanwhileError, HTTPStatus.PRECONDITION_FAILED, "changed-meanwhile"),
    (KeyReusedError, HTTPStatus.UNPROCESSABLE_ENTITY, "idempotency-key-reused"),
    (AlreadyFinishedError, HTTPStatus.CONFLICT, "already-finished"),
    (AgentTokenError, HTTPStatus.UNAUTHORIZED, "unauthenticated"),
    (OtherAgentError, HTTPStatus.FORBIDDEN, "forbidden"),
    (StaleLeaseError, HTTPStatus.CONFLICT, "stale-lease"),
    (NotLaunchedError, HTTPStatus.CONFLICT, "not-launched"),
    (ResultConflictError, HTTPStatus.CONFLICT, "result-conflict"),
    (TuningStateError, HTTPStatus.CONFLICT, "already-finished"),
    (BusyError, HTTPStatus.TOO_MANY_REQUESTS, "busy"),
    (NotReadyError, HTTPStatus.SERVICE_UNAVAILABLE, "not-ready"),
    (SolveCancelledError, HTTPStatus.CONFLICT, "solve-cancelled"),
    (SolveTimeLimitError, HTTPStatus.GATEWAY_TIMEOUT, "solve-time-limit"),
    (SolveAbandonedError, HTTPStatus.SERVICE_UNAVAILABLE, "solve-abandoned"),
    (SolverDiedError, HTTPStatus.SERVICE_UNAVAILABLE, "solver-died"),
    (DaskLostError, HTTPStatus.SERVICE_UNAVAILABLE, "dask-unavailable"),
    (UnsupportedMediaTypeError, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type"),
    (ProjectExistsError, HTTPStatus.CONFLICT, "project-exists"),
    (InputError, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-input"),
    (DBAPIError, HTTPStatus.SERVICE_UNAVAILABLE, "database-unavailable"),
    (PoolTimeoutError, HTTPStatus.SERVICE_UNAVAILABLE, "database-unavailable"),
)
_HTTP_NAMES: dict[int, str] = {
    HTTPStatus.BAD_REQUEST: "malformed-request",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "body-too-large",
}
_COMPLAINTS_LIMIT = 20
_NAMED_AT = {
    "plan": "GET /v1/plans lists the project's plans; one that was deleted is planned again",
    "run": "GET /v1/runs lists the project's runs",
    "agent": "GET /v1/agents lists the project's agents",
    "tuning": "GET /v1/tunings lists the project's tunings",
    "key": "GET /v1/keys lists the project's keys",
    "analysis": "GET /v1/plans/{id}/analyses lists those of a plan; POST there asks for one",
    "operation": "operations are forgotten some days after their end: send the request again, "
    "and what was found is answered at once",
    "lease of this agent": "ask for work again: this lease was given up or is another agent's",
}


def problem_of(error: Exception) -> Problem:
    """Return what a client is told about `error`; the unexpected is not spelled out."""
    if isinstance(error, FailedSolveError):
        return error.problem
    for kind, status, name in _STATUSES:
        if isinstance(error, kind):
            return _problem(error, status, name)
    return _problem(error, HTTPStatus.INTERNAL_SERVER_ERROR, "internal-error")


def http_problem(status: int, detail: str, *errors: ProblemField) -> Problem:
    """Return the problem for a status that the web framework decided on."""
    phrase = HTTPStatus(status).phrase
    name = _HTTP_NAMES.get(status, phrase.lower().replace(" ", "-"))
    return Problem(
        type=PROBLEM_TYPE_PREFIX + name, title=phrase, status=status, detail=detail, errors=errors
    )


def unknown_path_problem(path: str) -> Problem:
    """Return the problem for a path at which there is no operation."""
    said = f"there is no operation at {shorten(path)!r}"
    remedy = "look it up in /openapi.json, which /docs shows"
    field = ProblemField(field="path", value=shorten(path), remedy=remedy, problem=said)
    return http_problem(HTTPStatus.NOT_FOUND, f"{said}; {remedy}", field)


def wrong_method_problem(method: str, path: str, allowed: str) -> Problem:
    """Return the problem for a method that the operations at a path do not have."""
    said = f"{shorten(path)!r} does not take {shorten(method)}"
    remedy = f"use {allowed}"
    field = ProblemField(field="method", value=shorten(method), remedy=remedy, problem=said)
    return http_problem(HTTPStatus.METHOD_NOT_ALLOWED, f"{said}; {remedy}", field)


def invalid_request_problem(
    complaints: Sequence[Mapping[str, Any]], *, body: type[BaseModel] | None = None
) -> Problem:
    """Return the problem for a request whose fields pydantic complains about, of such a `body`."""
    fields = tuple(_complained_field(each, body) for each in complaints[:_COMPLAINTS_LIMIT])
    first = fields[0]
    more = "" if len(complaints) == 1 else f" (and {len(complaints) - 1} more)"
    got = "" if first.value is None else f" (got {first.value})"
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    return Problem(
        type=PROBLEM_TYPE_PREFIX + "invalid-input",
        title="Invalid input",
        status=status.value,
        detail=f"{first.field}: {first.problem}{got}; {first.remedy}{more}",
        errors=fields,
    )


def misdirected_problem(host: str) -> Problem:
    """Return the problem for a request to a name that is not this service's."""
    return http_problem(
        HTTPStatus.MISDIRECTED_REQUEST,
        f"{shorten(host)!r} is not a name of this service; use one of its own, or add this one to "
        "MESHWRIGHT_ALLOWED_HOSTS",
    )


def body_too_large_problem(limit_bytes: int) -> Problem:
    """Return the problem for a body above the limit."""
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    return http_problem(
        status,
        f"the body is larger than {format_bytes(limit_bytes)}; give the configuration alone",
    )


def body_too_slow_problem(limit_seconds: float) -> Problem:
    """Return the problem for a body that does not come in time."""
    return http_problem(
        HTTPStatus.REQUEST_TIMEOUT,
        f"the body did not arrive within {limit_seconds:g} s; send it again over a faster "
        "connection, or raise MESHWRIGHT_BODY_SECONDS_LIMIT",
    )


def _problem(error: Exception, status: HTTPStatus, name: str) -> Problem:
    return Problem(
        type=PROBLEM_TYPE_PREFIX + name,
        title=name.replace("-", " ").capitalize(),
        status=status.value,
        detail=_DETAILS.get(name) or str(error),
        errors=_fields(error),
    )


_DETAILS = {
    "database-unavailable": "the database cannot be reached at the moment; try again later",
    "internal-error": "the service failed in a way that it did not expect; its log tells how, "
    "beside the id of the request, operation or plan",
}


def _fields(error: Exception) -> tuple[ProblemField, ...]:
    if isinstance(error, KeyReusedError):
        remedy = "use a new key for a new request"
        return (ProblemField(field="Idempotency-Key", value=error.key, remedy=remedy),)
    if isinstance(error, NotFoundError):
        shown = shorten(error.identifier)
        return (
            ProblemField(field=error.kind, value=shown, remedy=error.remedy, problem=str(error)),
        )
    if not isinstance(error, InputError):
        return ()
    return (
        ProblemField(
            field=error.field,
            value=_shown(error.value),
            remedy=error.remedy,
            problem=error.problem,
        ),
    )


def _complained_field(complaint: Mapping[str, Any], body: type[BaseModel] | None) -> ProblemField:
    location = complaint["loc"][1:]
    kind = complaint["type"]
    given = complaint.get("input")
    problem, remedy = complaint_words(complaint)
    if kind == "extra_forbidden" and body is not None:
        remedy = meant(location, body) + remedy
    return ProblemField(
        field=field_path(location) or str(complaint["loc"][0]),
        value=None if kind == "missing" or isinstance(given, (dict, list)) else _shown(given),
        remedy=remedy,
        problem=problem,
    )


def _shown(value: object) -> JsonValue:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < 2**53:
        return value
    return shorten(value)
