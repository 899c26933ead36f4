"""What an administrator does: keys, projects; and what anybody may stop."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.serve import ENDLESS_BATCH
from tests.browser.test_stories import CONFIG

pytestmark = pytest.mark.browser
KEY = re.compile(r"mw_[a-z0-9]{8}_[A-Za-z0-9_-]{43}")


def sign_in(page: Page, key: str) -> None:
    page.goto("/login")
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()


def the_new_key(page: Page) -> str:
    """Return the key that the page shows this once."""
    shown = page.get_by_role("region", name="The new key")
    expect(shown).to_have_text(KEY)
    return shown.inner_text().strip()


def test_a_key_is_made_used_and_revoked(page, make_page):
    page.goto("/keys")
    page.get_by_label("Name", exact=True).fill("nightly")
    page.get_by_role("button", name="Create key").click()
    key = the_new_key(page)
    holder = make_page()
    sign_in(holder, key)
    expect(holder.get_by_text("Project default, signed in as nightly")).to_be_visible()
    expect(holder.get_by_role("link", name="Keys")).to_have_count(0)

    row = page.get_by_role("row", name=re.compile("^nightly"))
    row.get_by_text("Revoke", exact=False).first.click()
    row.get_by_role("button", name=re.compile("^Revoke mw_")).click()

    expect(page.get_by_role("row", name=re.compile("^nightly"))).to_contain_text("revoked")
    holder.goto("/")
    expect(holder.get_by_role("button", name="Sign out")).to_have_count(0)


def test_a_project_is_made_and_its_administrator_sees_nothing_else(page, make_page):
    page.goto("/projects")
    page.get_by_label("Project name").fill("vision")
    page.get_by_role("textbox", name="Administrator").fill("Ada")
    page.get_by_role("button", name="Create the project").click()
    ada = make_page()
    sign_in(ada, the_new_key(page))

    ada.goto("/projects")

    expect(ada.get_by_role("table", name="Keys of the project vision")).to_contain_text("Ada")
    expect(ada.get_by_text("default", exact=True)).to_have_count(0)
    ada.goto("/")
    expect(ada.get_by_role("link", name=re.compile("tiny"))).to_have_count(0)
    page.goto("/projects")
    page.get_by_text(re.compile("^vision")).click()
    expect(page.get_by_role("table", name="Keys of the project vision")).to_contain_text("Ada")


@pytest.fixture
def busy_solvers(client):
    """Both solvers have something endless to do, so that nothing else ends by itself."""
    started = []
    for length in (128, 256):
        job = {"global_batch_size": ENDLESS_BATCH, "sequence_length": length}
        body = {"model": CONFIG, "cluster": "8xh100-sxm5-80gb", "job": job}
        answer = client.post("/v1/plans", json=body, headers={"Prefer": "wait=0"})
        started.append(answer.headers["location"])
    yield
    for operation in started:
        client.delete(operation)


@pytest.mark.usefixtures("busy_solvers")
def test_an_analysis_under_way_is_cancelled(page):
    page.goto("/plans/plan-wide/trade-offs")
    page.get_by_role("button", name="Find the Pareto front").click()
    page.get_by_role("button", name=re.compile("^Cancel")).click()
    expect(page.get_by_role("button", name="Find the Pareto front")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("^Cancel"))).to_have_count(0)
