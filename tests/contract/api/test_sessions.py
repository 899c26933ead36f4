"""The dashboard's sessions: signed in with a key, kept in a signed cookie, ended with the key."""

from __future__ import annotations

import re

import pytest

from api.db import Database
from api.services.keys import KeyService, operator
from api.services.sessions import SessionService
from api.settings import Settings
from tests.contract.api.callers import a_key, secret_of
from tests.contract.api.minutes import in_one_minute

COOKIE = "meshwright_session"


@pytest.fixture
def browser(make_client):
    """A browser at a service that asks everybody for a key."""
    with make_client(anonymous_scopes=()) as client:
        client.follow_redirects = False
        yield client


def token_of(page: str) -> str:
    """Return the token of the page's form."""
    return re.findall(r'name="form_token" value="([0-9a-f]{64})"', page)[0]


def sign_in(browser, key: str, **fields: str):
    """Send the form of the login page."""
    token = token_of(browser.get("/login").text)
    return browser.post("/login", data={"key": key, "form_token": token, **fields})


def test_a_page_leads_to_the_login_and_back(browser, database):
    wanted = browser.get("/plans/new?model_name=gpt2")
    assert wanted.status_code == 303
    assert wanted.headers["Location"] == "/login?next=/plans/new%3Fmodel_name%3Dgpt2"

    login = browser.get(wanted.headers["Location"]).text
    then = re.findall(r'name="next" value="([^"]*)"', login)[0]
    signed_in = sign_in(browser, a_key(database).key, next=then)

    assert signed_in.headers["Location"] == "/plans/new?model_name=gpt2"
    page = browser.get(signed_in.headers["Location"])
    assert page.status_code == 200
    assert "Sign out" in page.text


def test_the_cookie_is_out_of_reach_and_holds_no_key(browser, database):
    key = a_key(database)

    header = sign_in(browser, key.key).headers["Set-Cookie"]

    assert {"HttpOnly", "SameSite=lax", "Path=/"} <= set(header.split("; "))
    assert key.key not in header
    assert secret_of(key.key) not in header


def test_a_wrong_key_is_told_so_and_not_shown_again(browser):
    answer = sign_in(browser, "mw_wrong")

    assert answer.status_code == 401
    assert "No such key" in answer.text
    assert "mw_wrong" not in answer.text


def test_guessing_is_slowed_down(make_client):
    def guesses():
        with make_client() as client:
            return [sign_in(client, "mw_wrong").status_code for _ in range(31)]

    answers = in_one_minute(guesses)

    assert answers[0] == 401
    assert answers[-1] == 429


def test_the_login_leads_to_no_other_site(browser, database):
    for target in ("//evil.example", "https://evil.example", "/\\evil.example"):
        assert sign_in(browser, a_key(database).key, next=target).headers["Location"] == "/"


def test_a_form_without_its_pages_token_is_refused(browser, database):
    sign_in(browser, a_key(database).key)

    for fields in ({}, {"form_token": "0" * 64}):
        assert browser.post("/logout", data=fields).status_code == 403
    token = token_of(browser.get("/plans/new").text)
    assert browser.post("/logout", data={"form_token": token}).status_code == 303


def test_the_token_of_another_session_is_refused(browser, database):
    other = token_of(browser.get("/login").text)
    browser.cookies.clear()

    sign_in(browser, a_key(database).key)

    assert browser.post("/logout", data={"form_token": other}).status_code == 403


def test_signing_out_ends_it(browser, database):
    sign_in(browser, a_key(database).key)
    token = token_of(browser.get("/").text)

    browser.post("/logout", data={"form_token": token})

    assert browser.get("/").headers["Location"].startswith("/login")


def test_revoking_the_key_ends_its_sessions(browser, database):
    key = a_key(database)
    sign_in(browser, key.key)
    assert browser.get("/").status_code == 200

    KeyService(database).revoke(operator(), key.id)

    assert browser.get("/").status_code == 303


def test_a_cookie_that_was_changed_is_worth_nothing(browser, database):
    sign_in(browser, a_key(database).key)
    good = browser.cookies[COOKIE]
    browser.cookies.clear()

    # Not the last character: of that one, not all bits say something.
    browser.cookies.set(COOKIE, good[:-5] + ("A" if good[-5] != "A" else "B") + good[-4:])

    assert browser.get("/").status_code == 303


def test_a_session_has_the_scopes_of_its_key(browser, database):
    sign_in(browser, a_key(database, "read").key)
    token = token_of(browser.get("/plans/new").text)

    refused = browser.post("/plans/new", data={"form_token": token})

    assert refused.status_code == 403
    assert "needs the scope plan" in refused.text


def test_a_link_signs_in_once_clicked(browser, database):
    key = a_key(database)
    service = SessionService(database, KeyService(database), Settings())

    answer = browser.get("/login", params={"token": service.login_token(key.id)})

    assert answer.headers["Location"] == "/"
    assert browser.get("/").status_code == 200


def test_a_link_that_was_followed_signs_nobody_in_again(browser, database):
    token = SessionService(database, KeyService(database), Settings()).login_token(
        a_key(database).id
    )
    browser.get("/login", params={"token": token})
    browser.cookies.clear()

    again = browser.get("/login", params={"token": token})

    assert again.status_code == 401
    assert "The link was used before" in again.text
    assert browser.get("/").status_code == 303


def test_a_copied_cookie_is_worth_nothing_after_signing_out(browser, database):
    sign_in(browser, a_key(database).key)
    copied = browser.cookies[COOKIE]
    token = token_of(browser.get("/").text)
    browser.post("/logout", data={"form_token": token})

    browser.cookies.set(COOKIE, copied)

    assert browser.get("/").status_code == 303
    assert browser.get("/v1/plans").status_code == 401


def test_other_sessions_of_the_key_go_on(browser, make_client, database):
    key = a_key(database)
    sign_in(browser, key.key)
    with make_client(anonymous_scopes=()) as other:
        sign_in(other, key.key)
        token = token_of(browser.get("/").text)
        browser.post("/logout", data={"form_token": token})

        assert other.get("/", follow_redirects=False).status_code == 200


def test_form_tokens_differ_from_page_to_page_and_all_hold(browser, database):
    sign_in(browser, a_key(database).key)
    first, second = (token_of(browser.get("/plans/new").text) for _ in range(2))

    assert first != second
    assert browser.post("/logout", data={"form_token": first}).status_code == 303


def test_who_brings_no_cookie_needs_no_database():
    away = Database("sqlite:////no/such/folder/meshwright.db")
    sessions = SessionService(away, KeyService(away), Settings())

    assert sessions.caller(sessions.read(None)) is None


def test_a_forged_link_does_not(browser, database):
    key = a_key(database)
    forger = SessionService(database, KeyService(database), Settings(session_secret="guessed" * 5))

    answer = browser.get("/login", params={"token": forger.login_token(key.id)})

    assert answer.status_code == 401
    assert browser.get("/").status_code == 303


def test_a_session_holds_in_every_process(make_client, database):
    with make_client(anonymous_scopes=()) as one, make_client(anonymous_scopes=()) as other:
        sign_in(one, a_key(database).key)
        other.cookies.set(COOKIE, one.cookies[COOKIE])

        assert other.get("/", follow_redirects=False).status_code == 200


def test_a_session_reads_over_rest_but_other_sites_change_nothing_with_it(browser, database):
    sign_in(browser, a_key(database).key)

    assert browser.get("/v1/plans").status_code == 200
    foreign = browser.delete("/v1/plans/x", headers={"Sec-Fetch-Site": "cross-site"})
    assert foreign.status_code == 403


def test_pages_load_and_send_to_nowhere_else(browser):
    policy = browser.get("/login").headers["Content-Security-Policy"]

    assert "default-src 'self'" in policy
    assert "form-action 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


@pytest.mark.parametrize(("path", "status"), [("/nowhere", 404), ("/logout", 405)])
def test_whoever_signed_in_is_not_asked_to_on_pages_that_are_not_there(
    browser, database, path, status
):
    sign_in(browser, a_key(database).key)
    answer = browser.get(path, headers={"Accept": "text/html"})

    assert answer.status_code == status
    assert "Sign out" in answer.text
    assert "Sign in" not in answer.text
