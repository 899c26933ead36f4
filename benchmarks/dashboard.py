"""The dashboard over many plans: server seconds of its pages, and the bytes of the first one.

`python -m benchmarks.dashboard [PLAN_COUNT]` fills a SQLite file in a temporary folder with copies
of a few real plans (10,000 unless told), one plan of 16,384 devices and 500 queued runs of it, and
asks for all pages in turn in this process, a hundred times;
`--write` puts the figures into docs/dashboard.md. The bars: less than 200 ms of server time; of
processor time, 2 times that of an operation that reads nothing for a stored plan, 5 times for the
first page; and less than 300 KB for the first page without plotly. Requests are handed to the
application as a server does, so that no client is measured; processor time does not count what else
the machine does.
"""

from __future__ import annotations

import argparse
import logging
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from http import HTTPStatus

import structlog
from fastapi.testclient import TestClient
from sqlalchemy import insert
from starlette.types import ASGIApp, Message

from api.app import create_app
from api.caller import Scope
from api.db import Database
from api.migrate import upgrade
from api.repositories.plans import PlanRepository
from api.serve import freeze_start
from api.services.records import plan_row
from api.settings import Settings
from api.tables import PlanRow
from benchmarks.page import DOCS, put
from planner.planning import plan
from planner.requests.resolution import resolved_cluster, resolved_model
from planner.schema.job import Job

PLAN_COUNT = 10_000
RUN_COUNT = 500
ROUNDS = 100
PROJECT = "default"
PAGE = DOCS / "dashboard.md"
BARE, STORED, FIRST = (
    "an operation that reads nothing",
    "a stored plan over REST",
    "plans, newest first",
)
ASKED = (
    ("llama-3-8b", "8xh100-sxm5-80gb", 512),
    ("llama-3-8b", "8xh100-sxm5-80gb", 256),
    ("gpt2", "8xa100-sxm4-80gb", 512),
    ("qwen3-30b-a3b", "8x8xh100-sxm5-80gb", 1024),
)
LARGE = ("llama-3.1-405b", "2048x8xh100-sxm5-80gb", 2048)
LARGE_ID = "plan-large"
_MEDIAN = statistics.median
_COLUMNS = [column.key for column in PlanRow.__table__.columns if column.key != "sequence"]


def main() -> None:
    """Fill, ask and print."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan_count", nargs="?", type=int, default=PLAN_COUNT)
    parser.add_argument("--write", action="store_true", help=f"put the figures into {PAGE.name}")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/meshwright.db"
        fill(url, given.plan_count)
        lines = measured(url, given.plan_count)
    print("\n".join(lines))
    if given.write:
        put("speed of pages", lines, page=PAGE)


def measured(url: str, plan_count: int) -> list[str]:
    """Return the figures of the pages over that database, as lines of a document."""
    app = create_app(Settings(database_url=url, anonymous_scopes=tuple(Scope)))
    lines = [
        f"{plan_count:,} plans stored, {ROUNDS} requests of each page in turn, in milliseconds:",
        "",
        "| page | median | slowest | processor time, median | slowest |",
        "|---|---|---|---|---|",
    ]
    typical: dict[str, float] = {}
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        freeze_start()  # as `meshwright serve` does
        runs = [_queued(client) for _ in range(RUN_COUNT)]
        asked = (*pages(client), *_pages_of_runs(runs))
        turns = [[_seconds(client, path) for _, path in asked] for _ in range(ROUNDS)]
        for (name, _), of_page in zip(asked, zip(*turns, strict=True), strict=True):
            lines.append(_line(name, of_page))
            typical[name] = statistics.median(busy for _, busy in of_page)
        rounds = [_seconds(client, "/") for _ in _changes(app.state.database)]
        lines.append(_line(f"{FIRST}, made anew as plans changed", rounds))
        size = first_page_bytes(client) / 1e3
    stored, first = (typical[name] / typical[BARE] for name in (STORED, FIRST))
    return [
        *lines,
        "",
        f"A stored plan takes {stored:.1f} times the processor time of an operation that reads",
        f"nothing (bar: 2), the first page {first:.1f} times (bar: 5).",
        f"The first page with all that it loads, plotly apart: {size:.0f} kB.",
    ]


def fill(url: str, plan_count: int) -> None:
    """Store copies of real plans, each under an id of its own."""
    database = Database(url)
    upgrade(database)
    rows = [_row(model, cluster, batch) for model, cluster, batch in ASKED]
    with database.writing() as session:
        session.execute(insert(PlanRow).values(**_named(_row(*LARGE), LARGE_ID)))
        for index in range(plan_count):
            values = _named(rows[index % len(rows)], f"plan-{index:016x}")
            values["request_digest"] = f"{index:064x}"
            session.execute(insert(PlanRow).values(**values))
    database.close()


def _named(row: dict[str, str], name: str) -> dict[str, str]:
    """Return a plan's row under another id."""
    texts = {key: row[key].replace(row["id"], name) for key in ("summary", "document")}
    return {**row, **texts, "id": name}


def _queued(client: TestClient) -> str:
    """Return the id of a run that waits for an agent."""
    answer = client.post("/v1/runs", json={"plan_id": LARGE_ID})
    assert answer.status_code == HTTPStatus.CREATED, answer.text
    return str(answer.json()["id"])


def pages(client: TestClient) -> Iterator[tuple[str, str]]:
    """Yield what each measured page is called, and its path."""
    yield BARE, "/healthz"
    yield FIRST, "/"
    yield "plans, page 150", "/?page=150"
    yield "plans, fastest first", "/?sort=step_seconds&order=asc"
    yield "plans, searched and sorted", "/?q=qwen+DP&sort=peak_memory_bytes&order=desc"
    yield "plans of one model", "/?model=gpt2"
    ids = re.findall(r'name="plan" value="([^"]+)"', client.get("/").text)
    yield STORED, f"/v1/plans/{ids[1]}"
    yield "20 plans over REST", "/v1/plans?limit=20"
    yield "a plan", f"/plans/{ids[1]}"
    yield "comparison of two", f"/compare?plan={ids[1]}&plan={ids[2]}"
    yield "comparison of six", "/compare?" + "&".join(f"plan={each}" for each in ids[:6])
    yield "a plan of 16,384 devices", f"/plans/{LARGE_ID}"
    for name in ("why", "trade-offs", "placement", "exports", "runs"):
        yield f"its {name}", f"/plans/{LARGE_ID}/{name}"
    yield "the form", "/plans/new?model_name=llama-3-8b&cluster_short=8xh100-sxm5-80gb"
    for name in ("tunings", "fleet", "agents", "audit", "keys", "projects"):
        yield name, f"/{name}"


def _pages_of_runs(runs: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield f"{RUN_COUNT} runs, newest first", "/runs"
    yield "a run", f"/runs/{runs[0]}"


def first_page_bytes(client: TestClient) -> int:
    """Return the bytes of the list and of everything that it loads."""
    text = client.get("/").text
    linked = set(re.findall(r'(?:href|src)="(/static/[^"]+)"', text))
    loaded = [client.get(path.replace("&amp;", "&")).content for path in linked]
    return len(text.encode()) + sum(len(content) for content in loaded)


def _row(model: str, cluster: str, batch: int) -> dict[str, str]:
    job = Job(global_batch_size=batch)
    answer = plan(resolved_model(model), resolved_cluster(cluster), job)
    row = plan_row(answer, request_digest=answer.id)
    row.project_id = PROJECT
    return {name: getattr(row, name) for name in _COLUMNS}


def _line(name: str, rounds: Sequence[tuple[float, float]]) -> str:
    """Return the row of a page: the median and the most of each kind of second."""
    cells = (figure(kind) for kind in zip(*rounds, strict=True) for figure in (_MEDIAN, max))
    return f"| {name} | " + " | ".join(f"{1e3 * cell:.1f}" for cell in cells) + " |"


def _changes(database: Database) -> Iterator[None]:
    """Change the plans of the project before each round, as a plan that is found does."""
    for _ in range(ROUNDS):
        with database.writing() as session:
            PlanRepository(session, PROJECT).tag("none", ())
        yield


def _seconds(client: TestClient, path: str) -> tuple[float, float]:
    """Return how long the answer took by the clock, and how long the process worked meanwhile."""
    assert client.portal is not None
    return client.portal.call(partial(_asked, client.app, path))


async def _asked(app: ASGIApp, path: str) -> tuple[float, float]:
    place, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": place,
        "raw_path": place.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1:8000"), (b"accept-encoding", b"gzip")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
        "state": {},
    }
    statuses = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    started, worked = time.perf_counter(), time.process_time()
    await app(scope, receive, send)
    wall, busy = time.perf_counter() - started, time.process_time() - worked
    assert statuses == [200], (path, statuses)
    return wall, busy


if __name__ == "__main__":
    main()
