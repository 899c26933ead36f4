"""What handlers ask for by type: services, and headers already understood."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Header, Path, Request
from starlette.concurrency import run_in_threadpool
from structlog.contextvars import bind_contextvars

from api.caller import Caller, Scope
from api.metrics import Metrics
from api.services.analyses import AnalysisService
from api.services.audit import AuditService
from api.services.authentication import Authentication, Credentials
from api.services.catalogue import CatalogueService
from api.services.estimates import EstimateService
from api.services.health import HealthService
from api.services.keys import KeyService
from api.services.operations import OperationService
from api.services.plans import DEFAULT_WAIT_SECONDS, PlanService
from api.services.projects import ProjectService
from api.services.sessions import SessionService
from planner.schema.agent import Identifier

WAIT_SECONDS_LIMIT = 30.0
SESSION_COOKIE = "meshwright_session"
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,9})\"?(?=$|[,;\s])", re.IGNORECASE)
_EVENT_NUMBER = re.compile(r"\d{1,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services of one application."""

    plans: PlanService
    analyses: AnalysisService
    operations: OperationService
    estimates: EstimateService
    catalogue: CatalogueService
    health: HealthService
    keys: KeyService
    projects: ProjectService
    audit: AuditService
    sessions: SessionService
    authentication: Authentication


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionOptions:
    """What the headers of a submission ask for."""

    wait_seconds: float
    idempotency_key: str | None


def client_address(request: Request) -> str:
    """Return the address that the request comes from."""
    return request.client.host if request.client else "unknown"


def services(request: Request) -> Services:
    """Return the services of the application that the request came to."""
    return cast("Services", request.app.state.services)


class Part:
    """The dependency that gives what `find` takes from the application of a request."""

    def __init__(self, find: Callable[[Request], object]) -> None:
        self._find = find

    async def __call__(self, request: Request) -> object:
        """Return it, without a thread."""
        return self._find(request)


def preferred_wait_seconds(prefer: str | None) -> float:
    """Return the seconds that `Prefer: wait=N` (RFC 7240) asks for, within our limit.

    What cannot be understood is no preference, as the RFC has it.
    """
    match = _WAIT.search(prefer or "")
    return DEFAULT_WAIT_SECONDS if match is None else min(float(match[1]), WAIT_SECONDS_LIMIT)


def last_event_number(last_event_id: str | None) -> int:
    """Return the number of the event that a client saw last; 0 where it saw none of ours."""
    if last_event_id is None or not _EVENT_NUMBER.fullmatch(last_event_id):
        return 0
    return int(last_event_id)


IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[\x21-\x7e]{1,200}$",
        description="A client's own name for the request; the same key with another request is "
        "refused.",
    ),
]

IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        max_length=1000,
        description="The ETag of what the change was made from: what has another by now stays.",
    ),
]


async def _submission_options(
    prefer: Annotated[
        str | None,
        Header(description="`wait=N`: answer with the plan if it is found within N seconds."),
    ] = None,
    idempotency_key: IdempotencyKey = None,
) -> SubmissionOptions:
    return SubmissionOptions(
        wait_seconds=preferred_wait_seconds(prefer), idempotency_key=idempotency_key
    )


async def _last_event(
    last_event_id: Annotated[
        str | None, Header(description="The last event seen; the stream goes on after it.")
    ] = None,
) -> int:
    return last_event_number(last_event_id)


async def identified(request: Request) -> Caller:
    """Return who asks: by a key, by the session of a browser, or without either.

    Raises:
        UnauthenticatedError: if the key is no good, or one is needed and none was sent.
        ForeignSiteError: if another site sent the request through the user's browser.
    """
    known: Caller | None = getattr(request.state, "caller", None)
    if known is None:
        given, authentication = credentials(request), services(request).authentication
        if given.authorization is None and given.session_cookie is None:
            known = authentication.caller(given)  # nothing to look up: no thread is needed
        else:
            known = await run_in_threadpool(authentication.caller, given)
        request.state.caller = known
        bind_contextvars(caller=known.name, project=known.project_id)
    return known


def credentials(request: Request) -> Credentials:
    """Return what the request brings to say who sends it."""
    changes = request.method not in _SAFE_METHODS
    return Credentials(
        authorization=request.headers.get("authorization"),
        session_cookie=request.cookies.get(SESSION_COOKIE),
        changes=changes,
        foreign=changes and _is_foreign(request),
    )


def _is_foreign(request: Request) -> bool:
    """Return whether a page of another site had the browser send the request."""
    headers = request.headers
    own = {f"{request.url.scheme}://{headers.get('host')}", None}
    is_own_site = headers.get("sec-fetch-site", "same-origin") in {"same-origin", "none"}
    return not is_own_site or headers.get("origin") not in own


class CallerWith:
    """The dependency that gives the caller, and refuses one that lacks a scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    async def __call__(self, request: Request) -> Caller:
        """Return the caller.

        Raises:
            UnauthenticatedError: if nobody is known to ask.
            ForbiddenError: if the caller lacks the scope.
            RateLimitError: if it asked too often.
        """
        caller = await identified(request)
        checked: frozenset[Scope] = getattr(request.state, "scopes_checked", frozenset())
        if self.scope not in checked:  # a request counts once, however many parts ask
            services(request).authentication.check(caller, self.scope)
            request.state.scopes_checked = checked | {self.scope}
        return caller


def caller_with(scope: Scope) -> CallerWith:
    """Return the dependency that gives the caller and refuses one that lacks `scope`."""
    return CallerWith(scope)


Reader = Annotated[Caller, Depends(caller_with(Scope.READ))]
PlanCaller = Annotated[Caller, Depends(caller_with(Scope.PLAN))]
RunCaller = Annotated[Caller, Depends(caller_with(Scope.RUN))]
Administrator = Annotated[Caller, Depends(caller_with(Scope.ADMIN))]

Plans = Annotated[PlanService, Depends(Part(lambda request: services(request).plans))]
Analyses = Annotated[AnalysisService, Depends(Part(lambda request: services(request).analyses))]
Operations = Annotated[
    OperationService, Depends(Part(lambda request: services(request).operations))
]
Estimates = Annotated[EstimateService, Depends(Part(lambda request: services(request).estimates))]
Catalogue = Annotated[CatalogueService, Depends(Part(lambda request: services(request).catalogue))]
HealthChecks = Annotated[HealthService, Depends(Part(lambda request: services(request).health))]
Keys = Annotated[KeyService, Depends(Part(lambda request: services(request).keys))]
Projects = Annotated[ProjectService, Depends(Part(lambda request: services(request).projects))]
AuditLog = Annotated[AuditService, Depends(Part(lambda request: services(request).audit))]
Sessions = Annotated[SessionService, Depends(Part(lambda request: services(request).sessions))]
MetricsOfApp = Annotated[Metrics, Depends(Part(lambda request: request.app.state.metrics))]

SubmissionHeaders = Annotated[SubmissionOptions, Depends(_submission_options)]
LastEventNumber = Annotated[int, Depends(_last_event)]
PlanId = Annotated[Identifier, Path()]
OperationId = Annotated[Identifier, Path()]
KeyId = Annotated[Identifier, Path()]
