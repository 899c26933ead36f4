"""For everybody: without JavaScript, by keyboard, in the dark."""

import json
import re
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PATIENCE_SECONDS
from tests.browser.serve import GATED_BATCH
from tests.browser.test_stories import CONFIG, fill_form, submit

pytestmark = pytest.mark.browser


def focused(page: Page) -> str:
    """Return the name or text of what has the focus."""
    return page.evaluate(
        "() => { const at = document.activeElement;"
        " return (at.labels?.[0] ?? at).textContent.trim(); }"
    )


def tab_to(page: Page, name: str) -> None:
    """Press Tab until what is called `name` has the focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if re.search(name, focused(page)):
            return
    pytest.fail(f"{name!r} is out of the keyboard's reach")


def fill_colour(page: Page) -> str:
    bar = page.get_by_role("img", name=re.compile("Waterfall")).locator("svg .bars path").first
    expect(bar).to_be_visible()
    return bar.evaluate("bar => getComputedStyle(bar).fill")


def test_plan_reads_without_javascript(make_page):
    page = make_page(javascript=False)
    page.goto("/plans/plan-proven")
    expect(page.get_by_label("Headline numbers")).to_contain_text("1 s")
    expect(page.locator("noscript p").first).to_contain_text("The chart needs JavaScript.")
    page.get_by_text("Step time as a table").click()
    expect(page.get_by_role("row", name=re.compile("Compute .* 600 ms 60.0%"))).to_be_visible()


def test_plans_are_compared_without_javascript(make_page):
    page = make_page(javascript=False)
    page.goto("/")
    page.get_by_role("checkbox", name=re.compile("TP 4 x DP 2")).check()
    page.get_by_role("checkbox", name=re.compile("TP 2 x PP 2 x DP 2")).first.check()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("table", name=re.compile("^Compared plans"))).to_contain_text("better")


def test_a_plan_is_made_without_javascript(make_page, service):
    """While the search runs, the page reloads itself."""
    page = make_page(javascript=False)
    fill_form(page, json.dumps({**CONFIG, "hidden_size": 256}), batch=GATED_BATCH)
    submit(page)
    expect(page.get_by_role("heading", name="Finding the best plan")).to_be_visible()
    service.open_gate()
    page.wait_for_url(re.compile(r"/plans/plan-[0-9a-f]+$"))


def test_first_tab_skips_to_the_content(page):
    page.goto("/")
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the content"
    expect(page.get_by_role("link", name="Skip to the content")).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()


def test_plans_are_compared_by_keyboard_alone(page):
    page.goto("/")
    for name in ("^Compare tiny.*TP 2 x PP 2 x DP 2", "^Compare tiny.*TP 4 x DP 2"):
        tab_to(page, name)
        page.keyboard.press("Space")
    tab_to(page, "^Compare$")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare 2 plans")


def test_a_plan_is_asked_for_by_keyboard_alone(page):
    given = {
        "model_name": "gpt2",
        "cluster_short": "8xh100-sxm5-80gb",
        "sequence_length": 256,
        "solver_seconds": PATIENCE_SECONDS,
    }
    page.goto(f"/plans/new?{urlencode(given)}")
    tab_to(page, "Global batch size")
    page.keyboard.type("48")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/plans/plan-[0-9a-f]+$"))
    tab_to(page, "Step time as a table")
    page.keyboard.press("Enter")
    expect(page.get_by_role("table", name=re.compile("Time of one step"))).to_be_visible()


def test_focus_is_visible(page):
    page.goto("/")
    tab_to(page, "New plan")
    outline = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_charts_follow_the_colour_scheme(make_page):
    light, dark = make_page(color_scheme="light"), make_page(color_scheme="dark")
    for page in (light, dark):
        page.goto("/plans/plan-proven")
    assert fill_colour(light) == "rgb(55, 144, 249)"
    assert fill_colour(dark) == "rgb(82, 118, 223)"


def test_charts_change_with_the_colour_scheme(make_page):
    page = make_page(color_scheme="light")
    page.goto("/plans/plan-proven")
    assert fill_colour(page) == "rgb(55, 144, 249)"
    page.emulate_media(color_scheme="dark")
    bar = page.get_by_role("img", name=re.compile("Waterfall")).locator("svg .bars path").first
    expect(bar).to_have_css("fill", "rgb(82, 118, 223)")
