"""Pages over HTTP: statuses, headers, and errors told in pages."""

import html
import json
import re
from datetime import UTC, datetime

import pytest
from fastapi.testclient import TestClient

from api.caller import Scope
from api.repositories.plans import PlanRepository
from api.settings import Settings
from api.tables import PlanRow
from tests.applications import an_application
from tests.browser.seeds import WARNING, store, the_seeds
from tests.builders import a_plan


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('dashboard')}/meshwright.db"
    store(url, *the_seeds())
    app = an_application(Settings(database_url=url, allowed_hosts=("testserver",)))
    yield TestClient(app, follow_redirects=False)
    app.state.database.close()


@pytest.fixture
def empty(tmp_path):
    yield from client_over(tmp_path)


@pytest.fixture
def unlabelled(tmp_path):
    yield from client_over(tmp_path, a_plan(id="plan-x"))


def client_over(folder, *answers):
    """Yield the client of an application that has those answers."""
    url = f"sqlite:///{folder}/meshwright.db"
    store(url, *answers)
    app = an_application(Settings(database_url=url, allowed_hosts=("testserver",)))
    yield TestClient(app)
    app.state.database.close()


def form_token(client: TestClient) -> str:
    """Return the token of a form that the client was shown."""
    (token,) = re.findall(r'name="form_token" value="([0-9a-f]{64})"', client.get("/login").text)
    return token


OF_THE_THIRD_PLAN = [
    f"/plans/plan-third{page}"
    for page in ("", "/why", "/trade-offs", "/placement", "/exports", "/runs")
]


@pytest.mark.parametrize(
    "path", [*OF_THE_THIRD_PLAN, "/compare?plan=plan-third", "/plans/plan-infeasible"]
)
def test_warnings_of_an_answer_stand_on_each_of_its_pages(client, path):
    page = client.get(path).text
    (band,) = re.findall(r'<div class="notice warn warnings".*?</div>', page, re.DOTALL)
    assert f"{WARNING[:1].upper()}{WARNING[1:]}" in band


def test_a_comparison_says_which_plan_a_warning_is_of(client):
    shown = client.get("/compare?plan=plan-proven&plan=plan-third").text
    assert f"<li>B: {WARNING}</li>" in shown


@pytest.mark.parametrize(
    "path",
    [
        *OF_THE_THIRD_PLAN,
        "/compare?plan=plan-third",
        "/compare?plan=plan-proven&plan=plan-third",
        "/?sort=name",
    ],
)
def test_a_plan_is_called_by_its_users_name_on_every_page(client, path):
    assert re.search(r"<(h1|a|th)[^>]*>[^/]*Third try", client.get(path).text)


def test_the_rest_comparison_has_the_users_name(client):
    plans = client.get("/v1/plans/compare?plan=plan-proven&plan=plan-third").json()["plans"]
    assert [plan.get("name") for plan in plans] == [None, "Third try"]


PAGES = [
    "/",
    "/plans/new",
    "/plans/plan-proven",
    "/plans/plan-infeasible",
    "/compare?plan=plan-proven&plan=plan-wide",
]


@pytest.mark.parametrize("path", PAGES)
def test_page_may_load_nothing_from_elsewhere_and_runs_nothing_inline(client, path):
    response = client.get(path)
    assert response.status_code == 200
    policy = response.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize("path", PAGES)
def test_page_names_no_other_host_and_has_no_inline_code(client, path):
    text = client.get(path).text
    assert re.findall(r'(?:src|href|action)="(?:https?:)?//[^"]*"', text) == []
    assert re.findall(r'<[^>]* (?:style|on[a-z]+)="', text) == []
    assert re.findall(r"<script(?! type=\"application/json\")(?! src=)", text) == []


@pytest.mark.parametrize("path", PAGES)
def test_ids_are_unique_and_labels_lead_to_a_field(client, path):
    text = client.get(path).text
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    for attribute in ("for", "aria-labelledby", "aria-describedby"):
        named = re.findall(rf' {attribute}="([^"]+)"', text)
        assert set(" ".join(named).split()) <= set(ids)


def test_plotly_comes_from_its_own_wheel_and_may_be_kept(client):
    response = client.get("/static/plotly.min.js?v=1")
    assert response.status_code == 200
    assert b"plotly.js v" in response.content[:200]
    assert "max-age=31536000" in response.headers["cache-control"]


def test_empty_list_says_what_to_do(empty):
    text = empty.get("/").text
    assert "No plans yet" in text
    assert 'href="/plans/new"' in text
    assert "meshwright plan" in text


def listed(client, **query):
    """Return the ids of the plans in the table, in its order."""
    return re.findall(r'<a href="/plans/(plan-[a-z]+)">', client.get("/", params=query).text)


def test_list_is_searched_by_the_words_of_the_strategy(client):
    assert listed(client, q="TP 4") == ["plan-wide"]


def test_list_is_filtered_by_status(client):
    assert listed(client, status="infeasible") == ["plan-infeasible"]


def test_list_is_sorted_and_what_has_no_value_comes_last(client):
    shown = listed(client, sort="step_seconds", order="asc")
    assert (shown[0], shown[-1]) == ("plan-wide", "plan-infeasible")


def label(client, **fields):
    """Send the form of the plan's labels, as a browser without scripts does."""
    seen = re.findall(r'name="seen" value="([^"]*)"', client.get("/plans/plan-x").text)
    fields = {"form_token": form_token(client), "seen": html.unescape(seen[0]), **fields}
    return client.post("/plans/plan-x/labels", data=fields)


def test_labels_are_shown_as_text_wherever_the_plan_is(unlabelled):
    hostile = "<script>alert(1)</script>"
    page = label(unlabelled, name=hostile, tags="a&b, 'c'", notes=f"one\r\n{hostile}")

    assert page.status_code == 200
    for path in ("/", "/plans/plan-x", "/compare?plan=plan-x"):
        assert hostile not in unlabelled.get(path).text
    shown = html.unescape(page.text)
    assert f">{hostile}</h1>" in shown
    assert f'<p class="notes">one\n{hostile}</p>' in shown
    assert re.findall(r'href="(/\?tag=[^"]*)"', page.text) == ["/?tag=a%26b", "/?tag=%27c%27"]
    assert listed(unlabelled, tag="a&b") == ["plan-x"]
    assert listed(unlabelled, tag="a") == []


def test_labels_that_are_wrong_are_told_at_their_field_and_kept(unlabelled):
    page = label(unlabelled, name="a\x1bb", tags="x" * 41, notes="kept")

    assert page.status_code == 422
    assert re.findall(r'id="labels-(\w+)-error"', page.text) == ["name", "tags"]
    assert ">kept</textarea>" in page.text
    stale = label(unlabelled, name="mine", seen="other")
    assert stale.status_code == 422
    assert "changed after they were read" in stale.text
    assert 'value="mine"' in stale.text
    assert "mine" not in unlabelled.get("/").text


def test_filters_that_match_nothing_say_so(client):
    response = client.get("/", params={"q": "no%such"})
    assert "No plan matches these filters" in response.text


def test_a_page_past_the_end_is_the_last(client):
    assert "1 to 4 of 4 plans" in client.get("/", params={"page": 99}).text


def test_unknown_plan_is_a_page_with_404(client):
    response = client.get("/plans/plan-none")
    assert response.status_code == 404
    assert response.headers["content-type"].startswith("text/html")
    assert "there is no plan" in response.text


def test_comparison_of_too_many_is_a_page_with_422(client):
    response = client.get("/compare", params={"plan": [f"plan-{n}" for n in range(7)]})
    assert response.status_code == 422
    assert "a comparison takes 2 to 6 plans" in response.text
    assert "7 selected" in response.text


def test_infeasible_answers_are_not_compared(client):
    response = client.get("/compare?plan=plan-proven&plan=plan-infeasible")
    assert response.status_code == 422
    assert "is an infeasible answer" in response.text


def test_unknown_toggle_is_a_page_with_422(client):
    response = client.get("/compare?plan=plan-proven&plan=plan-wide&show=everything")
    assert response.status_code == 422
    assert response.headers["content-type"].startswith("text/html")


def test_odd_id_is_a_page_with_422(client):
    response = client.get("/plans/%00")
    assert response.status_code == 422
    assert response.headers["content-type"].startswith("text/html")


def test_error_page_escapes_what_it_quotes(client):
    response = client.get("/compare", params={"plan": ["<b>x</b>", "<b>y</b>"]})
    assert response.status_code == 404
    assert "<b>" not in response.text


def test_document_is_offered_as_a_file(client):
    response = client.get("/plans/plan-proven/document.json")
    assert 'filename="plan-proven.json"' in response.headers["content-disposition"]
    assert response.json() == client.get("/v1/plans/plan-proven").json()


def test_chart_data_cannot_end_its_script_element(client):
    text = client.get("/plans/plan-proven").text
    (figure, *_) = re.findall(r'<script type="application/json">(.*?)</script>', text, re.DOTALL)
    assert "<" not in figure
    assert json.loads(figure)["data"]


def test_form_is_refused_when_another_site_sends_it(client):
    response = client.post("/plans/new", headers={"Sec-Fetch-Site": "cross-site"})
    assert response.status_code == 403
    response = client.post("/plans/new", headers={"Origin": "http://elsewhere.example"})
    assert response.status_code == 403


def test_form_is_refused_without_the_token_of_its_page(client):
    form_token(client)
    for given in ({}, {"form_token": "0" * 64}):
        response = client.post("/plans/new", data=given)
        assert response.status_code == 403
        assert "reload it" in response.text


def test_form_with_mistakes_is_shown_again_as_it_was(client):
    fields = {"model_source": "config", "model_config": "{<!--", "stack": "jenga"}
    response = client.post("/plans/new", data={**fields, "form_token": form_token(client)})
    assert response.status_code == 422
    assert "{&lt;!--</textarea>" in response.text
    assert response.text.count('class="complaint"') == 3


def test_form_can_be_opened_filled(client):
    text = client.get("/plans/new?model_name=gpt2&sequence_length=512").text
    assert '<option value="gpt2" selected>' in text
    assert 'name="sequence_length" inputmode="decimal" autocomplete="off" value="512"' in text


def test_form_can_be_filled_from_an_answer(client):
    text = client.get("/plans/new?from=plan-infeasible").text
    assert 'value="8xh100-sxm5-80gb"' in text
    assert client.get("/plans/new?from=plan-none").status_code == 404


def test_unknown_operation_is_a_page_with_404(client):
    response = client.get("/operations/op-none")
    assert response.status_code == 404
    assert "there is no operation" in response.text


def test_pages_stay_out_of_the_rest_description(client):
    paths = client.get("/openapi.json").json()["paths"]
    assert [path for path in paths if not path.startswith(("/v1/", "/healthz", "/readyz"))] == [
        "/metrics"
    ]


def test_a_failure_of_ours_is_a_page_that_gives_nothing_away(client):
    """A document that cannot be read any more, say."""
    database = client.app.state.database
    with database.writing() as session:
        PlanRepository(session, "default").add(
            PlanRow(
                id="plan-rotten",
                request_digest="rotten",
                status="planned",
                model_name="rotten",
                cluster_name="rotten",
                created_at=datetime(2026, 1, 1, tzinfo=UTC),
                etag="rotten",
                summary="{}",
                document='{"secret": 1}',
            )
        )
    response = client.get("/plans/plan-rotten")
    with database.writing() as session:
        PlanRepository(session, "default").delete("plan-rotten")
    assert response.status_code == 500
    assert "Internal error" in response.text
    assert "secret" not in response.text


@pytest.mark.parametrize(
    ("path", "action"),
    [
        ("/plans/plan-proven/runs", "/plans/plan-proven/runs"),
        ("/plans/plan-proven/runs", "/plans/plan-proven/tunings"),
        ("/plans/plan-proven/trade-offs", "/plans/plan-proven/analyses"),
        ("/plans/plan-proven/why", "/plans/plan-proven/analyses"),
        ("/agents", "/agents/tokens"),
    ],
)
def test_who_may_read_alone_is_offered_no_form_that_needs_more(tmp_path, path, action):
    url = f"sqlite:///{tmp_path}/meshwright.db"
    store(url, *the_seeds())
    shown = {}
    for scopes in (("read",), tuple(Scope)):
        settings = Settings(
            database_url=url, allowed_hosts=("testserver",), anonymous_scopes=scopes
        )
        app = an_application(settings)
        shown[scopes] = f'action="{action}"' in TestClient(app).get(path).text
        app.state.database.close()
    assert list(shown.values()) == [False, True]


def test_an_empty_list_of_agents_shows_the_command_that_enrols_one(client):
    """`test_documented_shell.py` runs it."""
    shown = html.unescape(client.get("/agents").text)
    at = "--server http://testserver"
    assert f'meshwright agent run {at} --token "$(meshwright agent token {at})"' in shown


TOO_LONG = {"arguments": "data=" + "x" * 4001}


@pytest.mark.parametrize(
    ("form", "typed", "said"),
    [
        ("runs", TOO_LONG, "arguments.data: is too long (got xxx; write at most 4000 char"),
        (
            "tunings",
            TOO_LONG,
            "arguments.data: is too long (got xxx; write at most 4000 char",
        ),
        ("runs", {"restart_limit": "many"}, "restart_limit: is not a whole number (got many); "),
        ("tunings", {"runs": "0"}, "runs: is too small (got 0); use 1 or more"),
    ],
)
def test_what_a_form_must_not_say_is_told_with_its_remedy(tmp_path, form, typed, said):
    url = f"sqlite:///{tmp_path}/meshwright.db"
    store(url, a_plan(id="plan-x"))
    settings = Settings(
        database_url=url, allowed_hosts=("testserver",), anonymous_scopes=tuple(Scope)
    )
    app = an_application(settings)
    client = TestClient(app)
    fields = {"form_token": form_token(client), **typed}
    answer = client.post(f"/plans/plan-x/{form}", data=fields)
    app.state.database.close()

    assert answer.status_code == 422
    (told,) = re.findall(r'<p role="alert">(.*?)</p>', answer.text)
    assert all(part in html.unescape(told) for part in said.split("; "))
