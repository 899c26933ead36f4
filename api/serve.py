"""Serving: address checked, database migrated, then uvicorn."""

from __future__ import annotations

import uvicorn

from api import logs
from api.app import create_app
from api.migrate import upgrade_url
from api.settings import check_address, read_settings

_GRACE_SECONDS = 5


def main() -> int:
    """Serve until stopped."""
    settings = read_settings()
    check_address(settings)
    upgrade_url(settings.database_url)
    logs.configure(settings.log_format)
    app = create_app(settings)
    app.state.pool.warm_up()
    uvicorn.run(
        app,
        host=settings.host,
        port=settings.port,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    return 0
