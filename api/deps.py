"""What handlers ask for by type: services, and headers already understood."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Header, Path, Request

from api.caller import DEFAULT_PROJECT, Caller, Scope
from api.metrics import Metrics
from api.services.catalogue import CatalogueService
from api.services.estimates import EstimateService
from api.services.health import HealthService
from api.services.operations import OperationService
from api.services.plans import DEFAULT_WAIT_SECONDS, PlanService

WAIT_SECONDS_LIMIT = 30.0
IDENTIFIER_PATTERN = r"^[A-Za-z0-9._-]{1,64}$"
_WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,9})\"?(?=$|[,;\s])", re.IGNORECASE)
_EVENT_NUMBER = re.compile(r"\d{1,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services of one application."""

    plans: PlanService
    operations: OperationService
    estimates: EstimateService
    catalogue: CatalogueService
    health: HealthService


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionOptions:
    """What the headers of a submission ask for."""

    wait_seconds: float
    idempotency_key: str | None


def services(request: Request) -> Services:
    """Return the services of the application that the request came to."""
    return cast("Services", request.app.state.services)


async def _plans(request: Request) -> PlanService:
    return services(request).plans


async def _operations(request: Request) -> OperationService:
    return services(request).operations


async def _estimates(request: Request) -> EstimateService:
    return services(request).estimates


async def _catalogue(request: Request) -> CatalogueService:
    return services(request).catalogue


async def _health(request: Request) -> HealthService:
    return services(request).health


async def _metrics(request: Request) -> Metrics:
    return cast("Metrics", request.app.state.metrics)


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


async def _submission_options(
    prefer: Annotated[
        str | None,
        Header(description="`wait=N`: answer with the plan if it is found within N seconds."),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        Header(
            pattern=r"^[\x21-\x7e]{1,200}$",
            description="A client's own name for the request; the same key with another request "
            "is refused.",
        ),
    ] = None,
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


async def _anonymous() -> Caller:
    return Caller(project_id=DEFAULT_PROJECT, name="local", scopes=frozenset(Scope), key_id=None)


def caller_with(scope: Scope) -> Callable[..., Awaitable[Caller]]:
    """Return the dependency that gives the caller and refuses one that lacks `scope`."""

    async def allowed(caller: Annotated[Caller, Depends(_anonymous)]) -> Caller:
        if scope not in caller.scopes:
            raise PermissionError(scope)
        return caller

    return allowed


Reader = Annotated[Caller, Depends(caller_with(Scope.READ))]
PlanCaller = Annotated[Caller, Depends(caller_with(Scope.PLAN))]
RunCaller = Annotated[Caller, Depends(caller_with(Scope.RUN))]
Administrator = Annotated[Caller, Depends(caller_with(Scope.ADMIN))]

Plans = Annotated[PlanService, Depends(_plans)]
Operations = Annotated[OperationService, Depends(_operations)]
Estimates = Annotated[EstimateService, Depends(_estimates)]
Catalogue = Annotated[CatalogueService, Depends(_catalogue)]
HealthChecks = Annotated[HealthService, Depends(_health)]
MetricsOfApp = Annotated[Metrics, Depends(_metrics)]

SubmissionHeaders = Annotated[SubmissionOptions, Depends(_submission_options)]
LastEventNumber = Annotated[int, Depends(_last_event)]
PlanId = Annotated[str, Path(pattern=IDENTIFIER_PATTERN)]
OperationId = Annotated[str, Path(pattern=IDENTIFIER_PATTERN)]
