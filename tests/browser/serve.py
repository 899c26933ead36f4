"""The service that the browser visits: the real planner, and a gate before some of its solves.

`python -m tests.browser.serve DATABASE_URL GATE` prints its port and serves until its input ends.
A job of `GATED_BATCH` sequences reports progress and then waits until somebody writes to the named
pipe GATE; one of `ENDLESS_BATCH` waits for ever.
"""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn

from api.app import create_app
from api.caller import Scope
from api.services.planner import the_planner
from api.settings import Settings
from planner.planning import plan
from planner.schema.job import Job
from planner.schema.plan import Infeasible, Plan, ResolvedCluster, ResolvedModel
from tests.contract.api.solvers import a_progress

GATED_BATCH = 24
ENDLESS_BATCH = 40
_GATE = "MESHWRIGHT_TEST_GATE"


def gated_plan(
    model: ResolvedModel, cluster: ResolvedCluster, job: Job, *, on_progress: Any = None
) -> Plan | Infeasible:
    """Plan, after the gate has opened."""
    if job.global_batch_size in {GATED_BATCH, ENDLESS_BATCH} and on_progress is not None:
        on_progress(a_progress())
    if job.global_batch_size == GATED_BATCH:
        Path(os.environ[_GATE]).read_text(encoding="utf-8")
    if job.global_batch_size == ENDLESS_BATCH:
        threading.Event().wait()
    return plan(model, cluster, job, on_progress=on_progress)


def main() -> None:
    """Serve on a free port of this machine."""
    database_url, gate = sys.argv[1:]
    os.environ[_GATE] = gate
    settings = Settings(
        database_url=database_url, solver_processes=2, anonymous_scopes=tuple(Scope)
    )
    app = create_app(settings, planner=replace(the_planner(), plan=gated_plan))
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=1
    )
    socket = config.bind_socket()
    socket.listen()  # so that whoever reads the port can connect, and is answered once all is up
    server = uvicorn.Server(config)
    threading.Thread(target=_stop_with_input, args=(server,), daemon=True).start()
    print(socket.getsockname()[1], flush=True)  # noqa: T201 - whoever started this reads it
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads the log
    server.run(sockets=[socket])


def _stop_with_input(server: uvicorn.Server) -> None:
    sys.stdin.read()
    server.should_exit = True


if __name__ == "__main__":
    main()
