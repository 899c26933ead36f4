"""Why a plan, what else could be had, one's own config beside it, and handing it over."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import PATIENCE_SECONDS
from tests.browser.test_stories import CONFIG
from tests.contract.api.processes import planned

pytestmark = pytest.mark.browser

# Few choices, so that what is asked about the plan is soon worked out.
LIMITS = {
    "solver_seconds": PATIENCE_SECONDS,
    "zero_stages": [1],
    "activation_checkpointing": ["none"],
    "offload": [],
}
JOB = {"global_batch_size": 64, "sequence_length": 256, "limits": LIMITS}
MINE = {"tensor_parallel_degree": 4, "data_parallel_degree": 2, "zero_stage": 1}


@pytest.fixture
def plan_url(client):
    """A plan of the real planner."""
    request = {"model": CONFIG, "cluster": "8xh100-sxm5-80gb", "job": JOB}
    return f"/plans/{planned(client, request).json()['id']}"


def test_memory_has_a_price_and_the_plan_a_runner_up(page, plan_url):
    page.goto(f"{plan_url}/why")
    page.get_by_role("button", name="Analyse").click()
    prices = page.get_by_role("table", name=re.compile("What one more GiB saves"))
    expect(prices).to_be_visible()
    page.get_by_role("link", name="Compare it with the plan").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare with your config")


def test_why_not_other_degrees_is_answered(page, plan_url):
    page.goto(f"{plan_url}/why")
    page.get_by_role("spinbutton", name="Tensor parallel").fill("3")
    page.get_by_role("button", name="Ask").click()
    article = page.get_by_role("article", name="Why not tensor parallel 3")
    expect(article).to_contain_text("does not divide")


def test_every_pair_of_degrees_has_a_step_or_a_reason(page, plan_url):
    page.goto(f"{plan_url}/trade-offs")
    page.get_by_role("button", name="Solve every pair of degrees").click()
    heatmap = page.get_by_role("table", name=re.compile("Least step by tensor-parallel"))
    expect(heatmap).to_be_visible()
    expect(heatmap).to_contain_text("this plan")
    cell = heatmap.get_by_role("cell", name=re.compile("^not legal for reason 1")).first
    cell.get_by_role("link").click()
    reasons = page.get_by_role("list", name="Why pairs have no plan")
    expect(reasons.get_by_role("listitem").first).to_contain_text("devices")


def test_a_pasted_config_is_priced_and_compared_at_an_address_of_its_own(page, plan_url):
    page.goto(plan_url)
    page.get_by_role("link", name="Compare", exact=True).click()
    page.get_by_role("textbox", name="Your strategy").fill(json.dumps(MINE))
    page.get_by_role("button", name="Price it and compare").click()
    page.wait_for_url(re.compile(r"/compare\?plan=.*&config=z\."))
    expect(
        page.get_by_role("heading", name=re.compile("a step (slower|faster) than A|as fast"))
    ).to_be_visible()
    expect(page.get_by_role("row", name="Tensor parallel 1 4")).to_have_count(1)
    page.goto(page.url)
    expect(page.get_by_role("table", name=re.compile("^Compared plans"))).to_contain_text(
        "Your config"
    )


def test_a_config_that_is_not_legal_is_told_at_its_field_and_kept(page, watch):
    watch.foreseen = {422}
    page.goto("/compare?plan=plan-proven")
    text = json.dumps({"tensor_parallel_degree": 3})
    page.get_by_role("textbox", name="Your strategy").fill(text)
    page.get_by_role("button", name="Price it and compare").click()
    box = page.get_by_role("textbox", name="Your strategy")
    expect(box).to_have_value(text)
    expect(box).to_have_attribute("aria-invalid", "true")
    expect(box).to_have_accessible_description(re.compile("Error: .*3"))


def test_a_plan_is_exported(page):
    page.goto("/plans/plan-proven/exports")
    targets = page.get_by_role("navigation", name="Targets")
    targets.get_by_role("link", name="Megatron-LM").click()
    expect(page.get_by_role("region", name="Text of megatron.sh")).to_contain_text(
        "--tensor-model-parallel-size 2"
    )
    with page.expect_download() as download:
        page.get_by_role("link", name="Download megatron.sh").click()
    assert "--pipeline-model-parallel-size 2" in download.value.path().read_text(encoding="utf-8")


def test_a_launcher_starts_a_frameworks_job(page):
    page.goto("/plans/plan-proven/exports/slurm")
    jobs = page.get_by_role("navigation", name="Jobs that it starts")
    jobs.get_by_role("link", name="Megatron-LM's job").click()
    expect(page.get_by_role("region", name="Text of slurm.sh")).to_contain_text("bash megatron.sh")
    expect(page.get_by_role("region", name="Text of megatron.sh")).to_be_visible()


def test_the_timeline_downloads_as_a_chrome_trace(page, plan_url):
    response = page.request.get(f"{plan_url}/trace.json")
    assert {event["ph"] for event in response.json()["traceEvents"]} >= {"M"}


def test_the_map_of_ranks_is_coloured_by_any_axis(page):
    page.goto("/plans/plan-proven/placement")
    page.get_by_role("link", name="Colour by Pipeline").click()
    expect(page.get_by_role("heading", name="Ranks on nodes by pipeline stage")).to_be_visible()
    assert page.locator(".device.group-1").count() == 4


def test_the_table_is_searched_and_sorted_by_links(page):
    page.goto("/")
    page.get_by_role("searchbox", name="Search").fill("TP 4 x DP 2")
    page.keyboard.press("Enter")
    expect(page.get_by_role("row")).to_have_count(2)
    page.get_by_role("link", name="Clear").click()
    page.get_by_role("link", name="Step time").click()
    expect(page.get_by_role("columnheader", name="Step time")).to_have_attribute(
        "aria-sort", "ascending"
    )
