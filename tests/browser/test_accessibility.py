"""WCAG 2.2 AA, as far as a program can tell: axe-core on every kind of page, light and dark."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser.agents_of_tests import a_run_under_way
from tests.browser.pages import PAGES

pytestmark = pytest.mark.browser

OPTIONS = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
}


@pytest.fixture
def still_page(make_page):
    """A page without transitions: colours on their way are no colours of ours."""
    return make_page(reduced_motion="reduce")


def violations(page) -> list[str]:
    """Return what axe finds, one line each with the first place."""
    found = Axe().run(page, options=OPTIONS).response["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html'][:160]}" for each in found]


def open_details(page) -> None:
    """Open what is folded away, so that it is looked at as well."""
    page.evaluate(
        "() => document.querySelectorAll('details').forEach((one) => { one.open = true; })"
    )


@pytest.mark.parametrize("path", PAGES)
def test_page_has_no_violation_in_light_and_dark(still_page, path):
    page = still_page
    page.goto(path)
    page.wait_for_load_state("networkidle")
    open_details(page)
    light = violations(page)
    page.emulate_media(color_scheme="dark")
    assert (light, violations(page)) == ([], [])


@pytest.mark.parametrize(
    "path", ["/", "/plans/plan-infeasible", "/runs", "/agents", "/keys", "/audit", "/projects"]
)
def test_tables_of_things_need_no_scrolling_on_a_narrow_screen(make_page, client, path):
    a_run_under_way(client, "plan-proven")
    page = make_page(viewport={"width": 400, "height": 900})
    page.goto(path)
    open_details(page)
    hidden = page.evaluate(
        "() => [...document.querySelectorAll('.scroll')]"
        ".filter((one) => one.scrollWidth > one.clientWidth + 1)"
        ".map((one) => one.getAttribute('aria-label'))"
    )

    assert hidden == []


def test_run_with_charts_and_logs_has_no_violation(still_page, client):
    page = still_page
    run_id, agent = a_run_under_way(client, "plan-proven")
    page.goto(f"/runs/{run_id}")
    page.wait_for_load_state("load")
    page.locator("#step-chart svg.main-svg").first.wait_for()
    open_details(page)
    light = violations(page)
    page.emulate_media(color_scheme="dark")
    assert (light, violations(page)) == ([], [])
    agent.result("succeeded")
