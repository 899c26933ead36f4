"""The pictures of docs/dashboard.md, taken where MESHWRIGHT_SCREENSHOTS names a folder for them.

Plans are of the real planner, so that the pictures show what a user sees.
"""

import os
import re
import sqlite3
from pathlib import Path

import httpx
import pytest

from tests.browser.agents_of_tests import an_agent, measure, take_lease
from tests.contract.api.agents_at_work import launch

FOLDER = os.environ.get("MESHWRIGHT_SCREENSHOTS")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(FOLDER is None, reason="MESHWRIGHT_SCREENSHOTS names no folder"),
]
MODEL, CLUSTER = "llama-3-8b", "8xh100-sxm5-80gb"
WIDE, MIDDLE, NARROW = 1440, 1024, 390
FIXED = (
    {},
    {"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2},
    {"pipeline_parallel_degree": 4},
)
MINE = (
    "tensor_parallel_degree: 4\nsequence_parallel: true\ndata_parallel_degree: 2\nzero_stage: 1\n"
)


@pytest.fixture(scope="module")
def plans(service):
    """Three plans of one job: the best, and the best under two limits."""
    found = []
    with httpx.Client(base_url=service.url, timeout=120) as client:
        for fixed in FIXED:
            limits = {name: {"min": degree, "max": degree} for name, degree in fixed.items()}
            body = {
                "model": MODEL,
                "cluster": CLUSTER,
                "job": {"global_batch_size": 512, "limits": limits},
            }
            answer = client.post("/v1/plans", json=body, headers={"Prefer": "wait=30"})
            found.append(answer.json()["id"])
    return found


@pytest.fixture
def shoot(make_page):
    """Take a picture of a page: `shoot(name, path)`, and `act` before it."""

    def taken(name, path, *, width=WIDE, scheme="light", act=None):
        page = make_page(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            reduced_motion="reduce",
        )
        page.goto(path)
        if act is not None:
            act(page)
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(400)
        Path(FOLDER).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(FOLDER) / f"{name}.png", full_page=True)

    return taken


def test_plans_and_comparisons(shoot, plans, client):
    job = {"global_batch_size": 512}
    body = {"model": "llama-3.1-405b", "cluster": "8xa100-sxm4-40gb", "job": job}
    infeasible = client.post("/v1/plans", json=body, headers={"Prefer": "wait=60"}).json()["id"]
    query = "&".join(f"plan={plan}" for plan in plans)
    best = plans[0]
    shoot("plans", "/")
    shoot("plans-narrow", "/", width=NARROW)
    shoot("plan", f"/plans/{best}")
    shoot("compare", f"/compare?{query}")
    shoot("compare-dark", f"/compare?{query}", width=MIDDLE, scheme="dark")
    shoot("placement", f"/plans/{plans[1]}/placement")
    shoot("exports", f"/plans/{best}/exports/torchtitan")
    shoot("new-plan", "/plans/new?model_source=config")
    shoot("infeasible", f"/plans/{infeasible}")


def test_ones_own_config(shoot, plans):
    def paste(page):
        page.get_by_role("textbox", name="Your strategy").fill(MINE)
        page.get_by_role("button", name="Price it and compare").click()
        page.wait_for_url(re.compile("config="))

    shoot("compare-config", f"/compare?plan={plans[0]}", act=paste)


def test_reasons_and_tradeoffs(shoot, plans):
    def ask(button, answer):
        def act(page):
            page.get_by_role("button", name=button).click()
            page.get_by_role("table", name=re.compile(answer)).wait_for()

        return act

    def both(page):
        ask("Solve every pair", "Least step by")(page)
        ask("Find the Pareto front", "The Pareto front")(page)

    shoot("why", f"/plans/{plans[0]}/why", act=ask("Analyse", "What one more GiB"))
    shoot("trade-offs", f"/plans/{plans[0]}/trade-offs", act=both)


def test_a_fleet(shoot, plans, client, service):
    """Eight runs, one a day, that take as long as predicted until the last four do not."""
    agent = an_agent(client)
    agent.poll()
    begun = {}
    for day, ratio in enumerate((1.02, 0.97, 1.05, 1.0, 1.31, 1.42, 1.36, 1.4), 1):
        plan = client.get(f"/v1/plans/{plans[day % 2]}").json()
        seconds = ratio * plan["prediction"]["step_seconds"]["p50"]
        run = client.post("/v1/runs", json={"plan_id": plan["id"]}).json()
        take_lease(agent)
        measure(agent, 1, 6, seconds=seconds)
        agent.result("succeeded")
        begun[run["id"]] = f"2026-11-{day:02} 09:00:00.000000"
    with sqlite3.connect(service.gate.parent / "meshwright.db", timeout=30) as database:
        rows = [(at, run_id) for run_id, at in begun.items()]
        database.executemany("UPDATE runs SET started_at = ? WHERE id = ?", rows)
    shoot("fleet", "/fleet")
    shoot("fleet-dark", "/fleet", width=NARROW, scheme="dark")


def test_a_run(shoot, plans, client):
    agent = an_agent(client)
    agent.poll()
    run = client.post("/v1/runs", json={"plan_id": plans[0], "arguments": {"steps": 200}}).json()
    take_lease(agent)
    measure(agent, 1, 24, seconds=33.4, tokens_per_second=62_700.0, peak_memory_bytes=78 * 10**9)
    agent.log(0, "".join(f"step {n}: loss {4 - n / 10:.2f}\n" for n in range(1, 25)))
    assert agent.beat("running", progress={"step": 24}).status_code == 200
    shoot("start-a-run", f"/plans/{plans[0]}/runs")
    shoot("agents", "/agents")
    page = f"/runs/{run['id']}"
    shoot("run", page)
    agent.result("succeeded")


def test_a_tuning(shoot, client):
    """Three trials of a tuning that goes on: two measured, and one out of memory."""
    agent = an_agent(client)
    agent.poll()
    body = {
        "model": MODEL,
        "cluster": CLUSTER,
        "job": {"global_batch_size": 512, "limits": {"solver_seconds": 20}},
        "budget": {"runs": 6, "steps": 4},
    }
    tuning = client.post("/v1/tunings", json=body).json()
    for ratio in (1.08, None, 1.03):
        trial = take_trial(client, agent, tuning["id"])
        if ratio is None:
            agent.result("failed", reason="CUDA out of memory", failed_rank=3, exit_code=1)
            continue
        measure(agent, 1, 5, **as_predicted(trial, ratio))
        agent.result("succeeded")
    measure(agent, 1, 2, **as_predicted(take_trial(client, agent, tuning["id"]), 1.05))
    agent.beat("running", progress={"step": 2})
    shoot("tuning", f"/tunings/{tuning['id']}")
    client.post(f"/v1/tunings/{tuning['id']}/cancel")
    agent.beat("running")
    agent.result("stopped")


def take_trial(client, agent, tuning_id):
    """Take the trial that is looked for now, as soon as it is found, and return it."""
    while agent.poll(wait=10).status_code != 200:
        assert client.get(f"/v1/tunings/{tuning_id}").json()["state"] == "running"
    launch(agent)
    return client.get(f"/v1/tunings/{tuning_id}").json()["under_way"]


def as_predicted(trial, ratio):
    """Return the step of a trial, by its ratio to the predicted one, and the peak as predicted."""
    peak_bytes = round(trial["predicted_peak_bytes"])
    return {"seconds": ratio * trial["predicted"]["p50"], "peak_memory_bytes": peak_bytes}
