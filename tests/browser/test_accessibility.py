"""WCAG 2.2 AA, as far as a program can tell: axe-core on every kind of page, light and dark."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser.agents_of_tests import a_run_under_way
from tests.browser.pages import PAGES

pytestmark = pytest.mark.browser

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
ALL = {"runOnly": {"type": "tag", "values": TAGS}}
# What axe has of colours: all else is the same in the dark.
CONTRAST = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}


@pytest.fixture
def still_page(make_page):
    """A page without transitions: colours on their way are no colours of ours."""
    return make_page(reduced_motion="reduce")


def violations(page) -> tuple[list[str], list[str]]:
    """Return what axe finds in the light and in the dark, one line each with the first place."""
    light = _violations(page, ALL)
    page.emulate_media(color_scheme="dark")
    return light, _violations(page, CONTRAST)


def _violations(page, options) -> list[str]:
    found = Axe().run(page, options=options).response["violations"]
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
    assert violations(page) == ([], [])


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
    assert violations(page) == ([], [])
    agent.result("succeeded")
