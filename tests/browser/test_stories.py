"""What a person does with the dashboard: ask, read, compare, and mend mistakes."""

import json
import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PATIENCE_SECONDS
from tests.browser.serve import ENDLESS_BATCH, GATED_BATCH

pytestmark = pytest.mark.browser

CONFIG = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 4096,
    "max_position_embeddings": 1024,
}


def fill_form(page: Page, config: str, *, batch: int) -> None:
    """Fill the form with a pasted configuration on eight H100."""
    page.goto("/plans/new")
    page.get_by_role("radio", name="Paste config.json").check()
    page.get_by_role("textbox", name="config.json").fill(config)
    page.get_by_role("combobox", name=re.compile("^Devices, nodes")).fill("8xh100-sxm5-80gb")
    page.get_by_role("textbox", name="Global batch size").fill(str(batch))
    page.get_by_role("textbox", name="Sequence length").fill("256")
    page.get_by_role("textbox", name="Search time limit").fill(str(PATIENCE_SECONDS))


def submit(page: Page) -> None:
    page.get_by_role("button", name="Find the best plan").click()


def test_a_pasted_configuration_becomes_a_plan(page):
    fill_form(page, json.dumps(CONFIG), batch=64)
    submit(page)
    page.wait_for_url(re.compile(r"/plans/plan-[0-9a-f]+$"))
    plan_id = page.url.rpartition("/")[2]
    expect(page.get_by_role("heading", level=1)).to_contain_text("llama 17M")
    expect(page.get_by_label("Headline numbers")).to_contain_text("tokens/s")
    expect(
        page.get_by_role("img", name=re.compile("Waterfall")).locator("svg").first
    ).to_be_visible()
    page.get_by_role("link", name="Plans", exact=True).first.click()
    row = page.get_by_role("row", name=re.compile("64 . 256 tokens"))
    expect(row.filter(has=page.locator(f'a[href="/plans/{plan_id}"]'))).to_have_count(1)


def test_a_broken_configuration_is_told_at_its_field_and_kept(page, watch):
    watch.foreseen = {422}
    text = json.dumps({**CONFIG, "num_attention_heads": "eight"})
    fill_form(page, text, batch=64)
    submit(page)
    box = page.get_by_role("textbox", name="config.json")
    expect(box).to_have_value(text)
    expect(box).to_have_attribute("aria-invalid", "true")
    expect(box).to_have_accessible_description(re.compile("num_attention_heads.*eight"))
    expect(page.get_by_role("alert")).to_contain_text("1 field needs correction")
    expect(page.get_by_role("textbox", name="Global batch size")).to_have_value("64")


def test_a_mended_configuration_is_accepted(page, watch):
    watch.foreseen = {422}
    fill_form(page, '{"model_type": "llama"', batch=32)
    submit(page)
    page.get_by_role("alert").get_by_role("link").click()
    page.get_by_role("textbox", name="config.json").fill(json.dumps(CONFIG))
    submit(page)
    page.wait_for_url(re.compile(r"/plans/plan-[0-9a-f]+$"))


def test_a_plan_is_named_and_found_by_its_tag_without_scripts(make_page):
    page = make_page(javascript=False, viewport={"width": 400, "height": 800})
    page.goto("/plans/plan-third")
    page.locator("summary", has_text="Edit name, tags and notes").click()
    page.get_by_role("textbox", name="Name").fill("n" * 150)
    page.get_by_role("textbox", name="Tags").fill("nightly, " + "t" * 40)
    page.get_by_role("textbox", name="Notes").fill("First line\n" + "x" * 300)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("n" * 150)
    assert pixels_beyond(page, "html") == 0
    page.get_by_role("link", name="nightly").click()
    expect(page.get_by_role("rowheader")).to_have_count(1)
    for path in (page.url, "/compare?plan=plan-proven"):
        page.goto(path)
        for width in (400, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            assert pixels_beyond(page, "html, .scroll") == 0


def pixels_beyond(page: Page, places: str) -> int:
    """Return how far the content of any of the places goes beyond it."""
    return page.evaluate(
        "(places) => Math.max(...[...document.querySelectorAll(places)]"
        ".map((one) => one.scrollWidth - one.clientWidth))",
        places,
    )


def test_an_operation_is_tried_out_in_the_documentation(page):
    page.goto("/docs")
    page.get_by_role("button", name="get /v1/models", exact=False).first.click()
    page.get_by_role("button", name="Try it out").click()
    page.get_by_role("button", name="Execute").click()
    expect(page.locator(".live-responses-table")).to_contain_text("llama-3-8b")


def test_two_plans_of_the_list_are_compared(page):
    page.goto("/")
    page.get_by_role("checkbox", name=re.compile("TP 4 x DP 2")).check()
    page.get_by_role("checkbox", name=re.compile("TP 2 x PP 2 x DP 2")).first.check()
    expect(page.get_by_role("status")).to_have_text("2 plans selected.")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare 2 plans")
    page.wait_for_url(re.compile(r"/compare\?plan=.*&plan="))


def test_comparison_shows_differences_and_on_demand_the_rest(page):
    page.goto("/compare?plan=plan-proven&plan=plan-wide")
    step = page.get_by_role("row", name=re.compile("^Step 1 s"))
    expect(step).to_contain_text(re.compile("800 ms .20.0% better"))
    expect(page.get_by_role("row", name=re.compile("^Tensor parallel 2 4"))).to_have_count(1)
    expect(page.get_by_role("row", name=re.compile("^Micro-batch size"))).to_have_count(0)
    page.get_by_role("link", name=re.compile("Show all facts")).click()
    expect(page.get_by_role("row", name=re.compile("^Micro-batch size"))).to_have_count(1)
    page.get_by_role("link", name="Show differences only").click()
    expect(page.get_by_role("row", name=re.compile("^Micro-batch size"))).to_have_count(0)


def test_three_plans_are_judged_at_a_glance_and_the_rest_unfolds(page):
    page.goto("/compare?plan=plan-proven&plan=plan-wide&plan=plan-third")
    overview = page.get_by_role("table", name=re.compile("^Compared plans"))
    wide = overview.get_by_role("row", name=re.compile("^B "))
    because = r"800 ms.*20\.0% better.*Bubble.*pipeline parallel 2 → 1"
    expect(wide).to_contain_text(re.compile(because, re.DOTALL))
    expect(overview.get_by_role("row").last).to_be_in_viewport()
    chart = page.get_by_role("img", name=re.compile("^Change of the step of B"))
    expect(chart).to_be_hidden()
    page.get_by_text("200 ms a step faster than A").click()
    expect(chart.locator("svg.main-svg").first).to_be_visible()


def test_another_plan_becomes_the_baseline(page):
    page.goto("/compare?plan=plan-proven&plan=plan-wide")
    page.get_by_role("link", name="Make baseline plan B").click()
    step = page.get_by_role("row", name=re.compile("^Step 800 ms"))
    expect(step).to_contain_text("1 s +25.0% worse")


def test_charts_of_a_comparison_are_drawn(page):
    page.goto("/compare?plan=plan-proven&plan=plan-wide")
    charts = page.get_by_role("img", name=re.compile("numbers$"))
    expect(charts).to_have_count(5)
    for index in range(5):
        expect(charts.nth(index).locator("svg.main-svg").first).to_be_visible()


def test_plan_page_gives_proof_reasons_and_the_document(page):
    page.goto("/plans/plan-proven")
    expect(
        page.get_by_role("heading", name=re.compile("Certificate Proven optimal"))
    ).to_be_visible()
    expect(page.get_by_text("Device memory of stage 1: 75 GiB of 76 GiB")).to_be_visible()
    expect(page.get_by_role("row", name="DP 8 at least 1.25 s +25.0%")).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("^0 Embedding"))).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download JSON").click()
    assert download.value.suggested_filename == "plan-proven.json"
    assert json.loads(download.value.path().read_text(encoding="utf-8"))["id"] == "plan-proven"


def test_charts_have_tables_with_the_same_numbers(page):
    page.goto("/plans/plan-proven")
    page.get_by_text("Step time as a table").click()
    expect(page.get_by_role("row", name=re.compile("Compute .* 600 ms 60.0%"))).to_be_visible()
    page.get_by_text("Memory as a table").click()
    table = page.get_by_role("table", name=re.compile("Peak memory"))
    expect(table.get_by_role("row", name=re.compile("^1 2.00 1.00 3.00"))).to_be_visible()


def test_infeasible_answer_says_what_would_help(page):
    page.goto("/")
    page.get_by_role("row", name=re.compile("Infeasible")).get_by_role("link").click()
    expect(
        page.get_by_text("None of the 7 legal configurations fits with a chance of 95%")
    ).to_be_visible()
    expect(
        page.get_by_role("row", name=re.compile("tensor parallel 8 device memory"))
    ).to_be_visible()
    page.get_by_role("link", name=re.compile("Open the form with this change")).click()
    expect(page.get_by_role("textbox", name="Sequence length")).to_have_value("64")


def test_a_long_search_shows_its_progress_and_then_the_plan(page, service):
    fill_form(page, json.dumps(CONFIG), batch=GATED_BATCH)
    submit(page)
    expect(page.get_by_role("heading", name="Finding the best plan")).to_be_visible()
    expect(page.get_by_text("50 of 100").first).to_be_visible()
    service.open_gate()
    page.wait_for_url(re.compile(r"/plans/plan-[0-9a-f]+$"))


def test_a_search_can_be_cancelled(page):
    fill_form(page, json.dumps(CONFIG), batch=ENDLESS_BATCH)
    submit(page)
    page.get_by_role("button", name="Cancel the search").click()
    expect(page.get_by_role("heading", name="The search was cancelled")).to_be_visible()


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/plans/plan-none", "there is no plan 'plan-none'"),
        ("/compare?" + "&".join(f"plan={n}" for n in "abcdefg"), "a comparison takes 2 to 6 plans"),
        ("/compare?plan=plan-proven&plan=plan-none", "there is no plan 'plan-none'"),
    ],
)
def test_errors_are_pages_with_a_way_back(page, watch, path, told):
    watch.foreseen = {404, 422}
    page.goto(path)
    expect(page.get_by_role("alert")).to_contain_text(told)
    page.get_by_role("link", name="Back to the plans").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Plans")
