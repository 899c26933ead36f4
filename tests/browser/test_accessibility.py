"""Every kind of page, on a narrow screen too, and WCAG 2.2 AA as far as axe-core can tell."""

import re

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.agents_of_tests import a_run_under_way
from tests.browser.conftest import PATIENCE_SECONDS, Watch, contexts_of
from tests.browser.pages import PAGES

pytestmark = pytest.mark.browser

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
ALL = {"runOnly": {"type": "tag", "values": TAGS}, "resultTypes": ["violations"]}
# What axe has of colours: all else is the same in the dark.
CONTRAST = {
    "runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]},
    "resultTypes": ["violations"],
}
LISTS = {"/", "/plans/plan-infeasible", *PAGES[PAGES.index("/runs") : PAGES.index("/login")]}
WIDE, NARROW = {"width": 1280, "height": 720}, {"width": 400, "height": 800}


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


@pytest.fixture(scope="module")
def run_under_way(service):
    """A run that an agent is at, so that no list is empty."""
    with httpx.Client(base_url=service.url, timeout=PATIENCE_SECONDS) as client:
        run_id, agent = a_run_under_way(client, "plan-proven")
        yield run_id
        agent.result("succeeded")


@pytest.fixture(scope="module", params=PAGES)
def shown(request, browser, service):
    """A page of each kind, loaded once for all that only look at it, narrow at first.

    Without transitions: colours on their way are no colours of ours.
    """
    request.getfixturevalue("run_under_way")
    watch = Watch()
    with contexts_of(browser, service, watch) as make:
        page = make(viewport=NARROW, reduced_motion="reduce")
        page.goto(request.param)
        page.wait_for_load_state("networkidle")
        yield page
    watch.check()


def test_narrow_page_does_not_scroll_sideways(shown, service):
    """Nor do tables of things, which are cards there."""
    shown.set_viewport_size(NARROW)
    assert shown.evaluate("() => document.documentElement.scrollWidth") <= 400
    if shown.url.removeprefix(service.url) in LISTS:
        open_details(shown)
        hidden = shown.evaluate(
            "() => [...document.querySelectorAll('.scroll')]"
            ".filter((one) => one.scrollWidth > one.clientWidth + 1)"
            ".map((one) => one.getAttribute('aria-label'))"
        )
        assert hidden == []


def test_page_has_one_heading_a_language_and_a_title(shown):
    expect(shown.get_by_role("heading", level=1)).to_have_count(1)
    expect(shown).to_have_title(re.compile(r".+ · Meshwright"))
    assert shown.evaluate("() => document.documentElement.lang") == "en"


def test_every_control_has_a_name(shown):
    """On a wide screen, where none is folded away."""
    shown.set_viewport_size(WIDE)
    for role in ("link", "button", "checkbox", "radio", "textbox", "combobox"):
        for control in shown.get_by_role(role).all():
            expect(control).to_have_accessible_name(re.compile(r"\S"))


def test_page_has_no_violation_in_light_and_dark(shown):
    """On a wide screen, with all that is folded away."""
    shown.set_viewport_size(WIDE)
    open_details(shown)
    assert violations(shown) == ([], [])


def test_lists_are_pages():
    """Else their tables are not looked at."""
    assert set(PAGES) >= LISTS


def test_run_with_charts_and_logs_has_no_violation(still_page, run_under_way):
    page = still_page
    page.goto(f"/runs/{run_under_way}")
    page.wait_for_load_state("load")
    page.locator("#step-chart svg.main-svg").first.wait_for()
    open_details(page)
    assert violations(page) == ([], [])
