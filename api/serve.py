"""Serving: address checked, database migrated, then uvicorn."""

from __future__ import annotations

import uvicorn
from sqlalchemy.exc import DBAPIError

from api import logs
from api.app import create_app
from api.db import Database
from api.errors import NotReadyError
from api.migrate import upgrade
from api.settings import check_address, read_settings

_GRACE_SECONDS = 5


def main() -> int:
    """Serve until stopped."""
    settings = read_settings()
    check_address(settings)
    logs.configure(settings.log_format)
    _migrate(settings.database_url)
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    return 0


def _migrate(database_url: str) -> None:
    database = Database(database_url)
    try:
        upgrade(database)
    except DBAPIError as error:
        raise NotReadyError(f"the database cannot be used: {error.orig}") from None
    finally:
        database.close()
