"""Serving: address checked, database migrated, then uvicorn."""

from __future__ import annotations

import gc
import sys

import uvicorn

from api import logs
from api.app import create_app
from api.first_key import announcement, ensure_key
from api.migrate import upgrade_url
from api.settings import check_address, read_settings
from api.telemetry import instrument

_GRACE_SECONDS = 5
# Longer than agents pause between heartbeats, so that none meets a connection that is just closed.
_KEEP_ALIVE_SECONDS = 75
# How long a thread that renders a page may hold the interpreter while answers wait (CPython: 5 ms).
_SWITCH_SECONDS = 0.001


def main() -> int:
    """Serve until stopped."""
    settings = read_settings()
    check_address(settings)
    upgrade_url(settings.database_url)
    logs.configure(settings.log_format)
    first = ensure_key(settings)
    if first is not None:
        print(announcement(first, settings), flush=True)  # noqa: T201 - for the terminal alone
    app = create_app(settings)
    end_telemetry = instrument(app)
    app.state.pool.warm_up()
    sys.setswitchinterval(_SWITCH_SECONDS)
    freeze_start()
    uvicorn.run(
        app,
        host=settings.host,
        port=settings.port,
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
    )
    if end_telemetry is not None:
        end_telemetry()
    return 0


def freeze_start() -> None:
    """Leave all objects of the start out of garbage collections: they stay until the end.

    There are 220,000, and each full collection of them held all answers up for 0.16 s.
    """
    gc.collect()
    gc.freeze()
