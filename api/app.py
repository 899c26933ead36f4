"""The application: settings in, routes, services and middleware put together."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus
from importlib.metadata import version

import structlog
from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from api.agent_services import agent_services_of
from api.compression import Compression
from api.dashboard import assets, pages, rendering, sign_in
from api.dashboard.page_route import is_for_a_page, missing_page, readable_response
from api.dashboard.plan_tables import PlanTables
from api.dashboard.visit import begin_visit
from api.db import READER_THREADS, WRITERS_LIMIT, Database
from api.deps import Services
from api.description import describe
from api.errors import http_problem
from api.fleet_metrics import FleetCollector
from api.head_requests import HeadRequests
from api.metrics import Metrics
from api.middleware import BodyLimit, HostCheck, RequestRecord
from api.problems import add_handlers, on_http_exception
from api.routes import (
    agents,
    analyses,
    audit,
    catalogue,
    estimates,
    exports,
    fleet,
    health,
    keys,
    leases,
    operations,
    plans,
    projects,
    runs,
    tunings,
)
from api.services.analyses import AnalysisService
from api.services.audit import AuditService
from api.services.authentication import Authentication
from api.services.catalogue import CatalogueService
from api.services.estimates import EstimateService
from api.services.health import HealthService
from api.services.keys import KeyService
from api.services.limits import RateLimits
from api.services.operations import OperationService
from api.services.plan_table import PlanTableService
from api.services.planner import Planner, the_planner
from api.services.plans import PlanService
from api.services.projects import ProjectService
from api.services.pruning import Pruning
from api.services.renewals import Renewals
from api.services.sessions import SessionService
from api.services.solves import Solves
from api.services.solving import Solving
from api.settings import Settings, read_settings
from api.solver_pools import solver_pool

_PRUNING_SECONDS = 3600

log = structlog.get_logger(__name__)


def create_app(settings: Settings | None = None, *, planner: Planner | None = None) -> FastAPI:
    """Return the application; tests may give settings and a planner of their own.

    Raises:
        InputError: if the environment or the settings cannot be understood.
    """
    settings = settings or read_settings()
    planner = planner or the_planner()
    database = Database(settings.database_url)
    pool = solver_pool(settings)
    solves = Solves(database, pool, planner.plan, settings=settings)
    operation_service = OperationService(database, solves)
    health_service = HealthService(database)
    limits = RateLimits(settings)
    key_service = KeyService(database)
    sessions = SessionService(database, key_service, settings)
    plan_service = PlanService(database, planner, solves, operation_service)
    solving = Solving(planner=planner, pool=pool, solves=solves)
    agent_services = agent_services_of(database, plan_service, limits, settings, solving=solving)
    analyses = AnalysisService(database, pool, solves, dask_scheduler=settings.dask_scheduler)
    renewals = Renewals((solves, analyses, agent_services.trials), settings)
    app = FastAPI(
        title="Meshwright",
        summary="Splits a training job over GPUs and proves the plan.",
        version=version("meshwright"),
        lifespan=_lifespan(
            database,
            Pruning(database, settings),
            openings=(
                health_service.check,
                sessions.open,
                renewals.open,
                agent_services.sweeper.open,
                rendering.prepare,
            ),
            closings=(agent_services.sweeper.close, renewals.close, solves.close),
        ),
        generate_unique_id_function=lambda route: route.name,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    app.state.services = Services(
        plans=plan_service,
        analyses=analyses,
        operations=operation_service,
        estimates=EstimateService(planner),
        catalogue=CatalogueService(planner),
        health=health_service,
        keys=key_service,
        projects=ProjectService(database),
        audit=AuditService(database),
        sessions=sessions,
        authentication=Authentication(key_service, sessions, limits, settings),
    )
    app.state.agent_services = agent_services
    app.state.database, app.state.pool, app.state.solves = database, pool, solves
    app.state.renewals = renewals
    app.state.plan_tables = PlanTables(PlanTableService(database))
    app.state.metrics = Metrics(
        running_count=lambda: len(pool.process_ids()),
        waiting_count=lambda: pool.waiting_count,
        collectors=(FleetCollector(database),),
    )
    _assemble(app, settings)
    return app


def _lifespan(
    database: Database,
    pruning: Pruning,
    *,
    openings: Sequence[Callable[[], object]],
    closings: Sequence[Callable[[], None]],
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        current_default_thread_limiter().total_tokens = WRITERS_LIMIT + READER_THREADS
        for open_one in openings:
            await run_in_threadpool(open_one)
        prunes = asyncio.create_task(_prune_hourly(pruning))
        yield
        prunes.cancel()
        await asyncio.wait({prunes})  # a thread that prunes needs the database until it ends
        for close_one in closings:
            await run_in_threadpool(close_one)
        database.close()

    return lifespan


async def _prune_hourly(pruning: Pruning) -> None:
    while True:
        try:
            await run_in_threadpool(pruning.prune)
        except Exception:
            log.exception("pruning failed")
        await asyncio.sleep(_PRUNING_SECONDS)


async def _on_missing(request: Request, error: Exception) -> Response:
    """Answer for an address that nothing has: to a browser with a page."""
    if is_for_a_page(request):
        return await missing_page(request)
    return await on_http_exception(request, error)


async def _on_wrong_method(request: Request, error: Exception) -> Response:
    """Answer for an address that is only sent to, which a browser opens all the same."""
    if is_for_a_page(request):
        await begin_visit(request)
        return readable_response(
            http_problem(HTTPStatus.METHOD_NOT_ALLOWED, "a form is sent here; there is no page"),
            request,
            dict(getattr(error, "headers", None) or {}),
        )
    return await on_http_exception(request, error)


def _assemble(app: FastAPI, settings: Settings) -> None:
    methods: dict[str, set[str]] = defaultdict(set)
    for routes in (
        plans,
        exports,
        analyses,
        operations,
        runs,
        fleet,
        tunings,
        agents,
        leases,
        estimates,
        catalogue,
        keys,
        projects,
        audit,
        health,
    ):
        app.include_router(routes.router)
        for route in routes.router.routes:
            if isinstance(route, APIRoute):
                methods[route.path] |= route.methods or set()
    app.state.methods = methods
    app.include_router(sign_in.router, include_in_schema=False)
    app.include_router(pages.router, include_in_schema=False)
    app.include_router(assets.router, include_in_schema=False)
    add_handlers(app)
    app.add_exception_handler(HTTPStatus.NOT_FOUND, _on_missing)
    app.add_exception_handler(HTTPStatus.METHOD_NOT_ALLOWED, _on_wrong_method)
    describe(app)
    app.add_middleware(Compression)
    app.add_middleware(HeadRequests)
    app.add_middleware(
        BodyLimit,
        limit_bytes=settings.body_bytes_limit,
        limit_seconds=settings.body_seconds_limit,
        refuse=readable_response,
    )
    app.add_middleware(HostCheck, settings=settings, refuse=readable_response)
    app.add_middleware(RequestRecord, metrics=app.state.metrics, refuse=readable_response)
