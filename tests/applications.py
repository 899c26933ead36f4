"""Applications for tests, which are made by the hundred."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from starlette.routing import BaseRoute, Mount, Route

from api.app import create_app
from api.settings import Settings

_HANDLED: list[BaseRoute] = []


def an_application(settings: Settings, **parts: Any) -> FastAPI:
    """Return an application that shares with the first one what FastAPI reads from signatures.

    It reads those of all handlers anew for each application, as soon as one is asked for: 0.2 s.
    """
    app = create_app(settings, **parts)
    routes = app.router.routes
    if not _HANDLED:
        _HANDLED.extend(route for route in routes if not isinstance(route, Mount | Route))
    known = iter(_HANDLED)
    routes[:] = [route if isinstance(route, Mount | Route) else next(known) for route in routes]
    return app
