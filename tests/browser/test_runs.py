"""Agents and runs: enrol, start a run from its plan, watch it, end it."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.agents_of_tests import a_run_under_way, an_agent, measure, take_lease

pytestmark = pytest.mark.browser


def test_an_agent_enrols_with_a_token_that_was_made_here(page, client):
    page.goto("/agents")
    page.get_by_role("textbox", name="Note").fill("for a test")
    page.get_by_role("button", name="Create the command for one node").click()
    command = page.get_by_role("region", name="Command with its token").inner_text()
    (token,) = re.findall(r"--token (mwe_\S+)", command)
    agent = an_agent(client, token=token, name="by-hand")
    agent.poll()
    page.goto("/agents")
    expect(
        page.get_by_role("row", name=re.compile("by-hand.* idle 8 . NVIDIA H100"))
    ).to_be_visible()
    agent.client.delete(f"/v1/agents/{agent.agent_id}")


def test_a_run_is_started_from_its_plan_watched_and_cancelled(page, client):
    """What the agent sends appears without a reload by hand."""
    agent = an_agent(client)
    agent.poll()
    page.goto("/plans/plan-proven")
    page.get_by_role("link", name="Runs", exact=True).last.click()
    start = page.get_by_role("region", name="Start a run")
    start.get_by_role("textbox", name="Arguments").fill("steps=200\nname=first try")
    page.get_by_role("button", name="Start the run").click()
    page.wait_for_url(re.compile(r"/runs/run-"))
    state = page.get_by_role("status").first
    take_lease(agent)
    assert agent.lease["arguments"] == {"steps": 200, "name": "first try"}
    expect(state).to_have_text("running")
    measure(agent, 1, 4)
    chart = page.get_by_role("img", name=re.compile("Measured and predicted time"))
    expect(chart.locator("svg.main-svg").first).to_be_visible()
    row = page.get_by_role("row", name=re.compile(r"Step \(median\) 1 s"))
    expect(row).to_contain_text("1.111 s")
    measure(agent, 5, 8, seconds=2.0)
    expect(row).to_contain_text("2 s")
    agent.log(0, "loss falls\n")
    agent.beat("running", progress={"step": 8})
    page.reload()
    expect(page.get_by_role("region", name="Log of node 0")).to_contain_text("loss falls")
    agent.log(11, "and falls\n")
    expect(page.get_by_role("region", name="Log of node 0")).to_contain_text("and falls")
    page.get_by_role("button", name="Cancel the run").click()
    expect(page.get_by_role("button", name="Cancelling")).to_be_disabled()
    assert agent.beat("running").json()["cancel_requested"]
    agent.result("stopped")
    expect(state).to_have_text("cancelled")
    expect(page.get_by_role("listitem").filter(has_text="running").first).to_be_visible()


def test_a_finished_run_reads_without_javascript(make_page, client):
    run_id, agent = a_run_under_way(client, "plan-proven")
    agent.result("succeeded")
    page = make_page(javascript=False)
    page.goto("/runs")
    page.get_by_role("link", name=run_id[:16]).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("succeeded")
    expect(
        page.get_by_role("row", name=re.compile(r"Step \(median\) 1 s 1\.111 s 1\.11"))
    ).to_be_visible()
    page.get_by_text("The last steps as a table").click()
    expect(page.get_by_role("row", name=re.compile("^1 8 "))).to_be_visible()


def test_an_argument_without_a_value_is_told(page, watch):
    watch.foreseen = {422}
    page.goto("/plans/plan-proven/runs")
    start = page.get_by_role("region", name="Start a run")
    start.get_by_role("textbox", name="Arguments").fill("steps")
    page.get_by_role("button", name="Start the run").click()
    expect(page.get_by_role("alert")).to_contain_text("write name=value, one a line")
