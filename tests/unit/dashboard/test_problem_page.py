"""The page of a problem: what went wrong, and where to go from there."""

from __future__ import annotations

import pytest

from api.dashboard.rendering import coded, problem_page
from api.errors import http_problem


@pytest.mark.parametrize(("status", "signs_in"), [(401, True), (403, False), (429, False)])
def test_only_who_is_not_known_is_sent_to_sign_in(status: int, signs_in: bool) -> None:
    text = bytes(problem_page(http_problem(status, "why it was refused")).body).decode()
    main = text.partition("<main")[2].partition("</main>")[0]

    assert "why it was refused" in main
    assert ('href="/login"' in main) is signs_in
    assert "Sign in" not in text.partition("<main")[0], "the bar asks whoever has signed in"
    assert main.count("button primary") == 1


def test_commands_between_backticks_are_shown_as_code_and_nothing_else_is():
    assert coded("run `meshwright trace <f>` & look") == (
        "run <code>meshwright trace &lt;f&gt;</code> &amp; look"
    )
    assert coded("a ` alone") == "a ` alone"
