"""The dashboard over many plans: server seconds of its pages, and the bytes of the first one.

`python -m benchmarks.dashboard [PLAN_COUNT]` fills a SQLite file in a temporary folder with copies
of a few real plans (10,000 unless told) and asks for pages in this process, twenty times each. The
bars: less than 200 ms of server time, and less than 300 KB for the first page without plotly.
"""

from __future__ import annotations

import logging
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator

import structlog
from fastapi.testclient import TestClient
from sqlalchemy import insert

from api.app import create_app
from api.db import Database
from api.migrate import upgrade
from api.services.records import plan_row
from api.settings import Settings
from api.tables import PlanRow
from planner.planning import plan
from planner.resolution import resolved_cluster, resolved_model
from planner.schema.job import Job

PLAN_COUNT = 10_000
ROUNDS = 20
PROJECT = "default"
ASKED = (
    ("llama-3-8b", "8xh100-sxm5-80gb", 512),
    ("llama-3-8b", "8xh100-sxm5-80gb", 256),
    ("gpt2", "8xa100-sxm4-80gb", 512),
    ("qwen3-30b-a3b", "8x8xh100-sxm5-80gb", 1024),
)
_COLUMNS = [column.key for column in PlanRow.__table__.columns if column.key != "sequence"]


def main() -> None:
    """Fill, ask and print."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    plan_count = int(sys.argv[1]) if len(sys.argv) > 1 else PLAN_COUNT
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/meshwright.db"
        fill(url, plan_count)
        app = create_app(Settings(database_url=url))
        with TestClient(app, base_url="http://127.0.0.1:8000") as client:
            print(f"{plan_count:,} plans, {ROUNDS} rounds: median and slowest server time")
            for name, path in pages(client):
                times = [_seconds(client, path) for _ in range(ROUNDS)]
                middle, most = statistics.median(times) * 1e3, max(times) * 1e3
                print(f"  {name:34} {middle:7.1f} ms  {most:7.1f} ms")
            print(f"first page without plotly: {first_page_bytes(client) / 1e3:.1f} kB")


def fill(url: str, plan_count: int) -> None:
    """Store copies of real plans, each under an id of its own."""
    database = Database(url)
    upgrade(database)
    rows = [_row(model, cluster, batch) for model, cluster, batch in ASKED]
    with database.writing() as session:
        for index in range(plan_count):
            values = dict(rows[index % len(rows)])
            name = f"plan-{index:016x}"
            values["summary"] = values["summary"].replace(values["id"], name)
            values["document"] = values["document"].replace(values["id"], name)
            values |= {"id": name, "request_digest": f"{index:064x}"}
            session.execute(insert(PlanRow).values(**values))
    database.close()


def pages(client: TestClient) -> Iterator[tuple[str, str]]:
    """Yield what each measured page is called, and its path."""
    yield "plans, newest first", "/"
    yield "plans, page 150", "/?page=150"
    yield "plans, fastest first", "/?sort=step_seconds&order=asc"
    yield "plans, searched and sorted", "/?q=qwen+DP&sort=peak_memory_bytes&order=desc"
    yield "plans of one model", "/?model=gpt2"
    ids = re.findall(r'name="plan" value="([^"]+)"', client.get("/").text)
    yield "a plan", f"/plans/{ids[1]}"
    yield "comparison of two", f"/compare?plan={ids[1]}&plan={ids[2]}"
    yield "comparison of six", "/compare?" + "&".join(f"plan={each}" for each in ids[:6])


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


def _seconds(client: TestClient, path: str) -> float:
    started = time.perf_counter()
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
