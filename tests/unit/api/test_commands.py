"""`python -m api` and `python -m api upgrade`: refusals are one line, not a traceback."""

from __future__ import annotations

import json

import pytest

from api.__main__ import main
from api.migrate import head_revision


@pytest.fixture
def failure(monkeypatch, capsys):
    """Run the command with some variables and return its only line on stderr."""

    def run(*arguments, **variables):
        for name, value in variables.items():
            monkeypatch.setenv(f"MESHWRIGHT_{name}", value)
        assert main(arguments) == 1
        (line,) = capsys.readouterr().err.splitlines()
        return line

    return run


def test_an_unknown_command_is_refused(failure):
    assert failure("downgrade").startswith("error: python -m api: takes no argument")


def test_an_address_that_others_can_reach_is_refused(failure):
    line = failure(HOST="0.0.0.0", ANONYMOUS_SCOPES="read")  # noqa: S104 - it is refused

    assert "MESHWRIGHT_ANONYMOUS_SCOPES" in line
    assert "without a key" in line


def test_an_address_that_others_can_reach_needs_a_key_first(failure, tmp_path):
    line = failure(HOST="0.0.0.0", DATABASE_URL=f"sqlite:///{tmp_path}/x.db")  # noqa: S104

    assert "MESHWRIGHT_HOST" in line
    assert "meshwright keys create" in line


def test_keys_are_made_listed_and_revoked_at_the_command_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("MESHWRIGHT_DATABASE_URL", f"sqlite:///{tmp_path}/x.db")

    assert main(["keys", "create", "--name", "ci", "--project", "team-a", "--scope", "read"]) == 0
    key = capsys.readouterr().out.strip()
    prefix = "_".join(key.split("_")[:2])
    assert main(["keys", "list"]) == 0
    listed = capsys.readouterr().out
    assert main(["keys", "revoke", prefix]) == 0
    main(["keys", "list", "--json"])

    assert prefix in listed
    assert "team-a" in listed
    assert key not in listed
    assert '"revoked_at": "2' in capsys.readouterr().out


def test_who_did_what_is_listed_at_the_command_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("MESHWRIGHT_DATABASE_URL", f"sqlite:///{tmp_path}/x.db")
    for name, project in (("ci", "team-a"), ("nightly", "team-a"), ("other", "team-b")):
        main(["keys", "create", "--name", name, "--project", project])
    capsys.readouterr()

    assert main(["audit", "--project", "team-a"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    main(["audit", "--project", "team-a", "--action", "key.revoke", "--json"])

    assert ["nightly" in lines[0], "ci" in lines[1], len(lines)] == [True, True, 2]
    assert all("operator" in line and "key.create" in line for line in lines)
    assert json.loads(capsys.readouterr().out) == {"items": [], "next_cursor": None}


@pytest.mark.parametrize("arguments", [("--limit", "0"), ("--project", "A B"), ("--cursor", "x")])
def test_what_cannot_be_listed_is_one_line(failure, tmp_path, arguments):
    line = failure("audit", *arguments, DATABASE_URL=f"sqlite:///{tmp_path}/x.db")

    assert line.startswith("error: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "--name", "x", "--project", "Team A"),
        ("create", "--name", "", "--project", "a"),
        ("revoke", "mw_nobodys"),
    ],
)
def test_what_cannot_be_done_with_keys_is_one_line(failure, tmp_path, arguments):
    line = failure("keys", *arguments, DATABASE_URL=f"sqlite:///{tmp_path}/x.db")

    assert line.startswith("error: ")


def test_a_bad_variable_is_refused(failure):
    assert "MESHWRIGHT_PORT" in failure(PORT="many")


@pytest.mark.parametrize("arguments", [(), ("upgrade",)])
def test_a_database_that_cannot_be_opened_is_refused(failure, tmp_path, arguments):
    line = failure(*arguments, DATABASE_URL=f"sqlite:///{tmp_path}/none/x.db")

    assert line.startswith("error: the database cannot be used: unable to open")


def test_an_upgrade_says_where_the_database_is(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("MESHWRIGHT_DATABASE_URL", f"sqlite:///{tmp_path}/new.db")

    assert [main(["upgrade"]), main(["upgrade"])] == [0, 0]
    assert capsys.readouterr().out.splitlines() == [
        f"database went from nothing to revision {head_revision()}",
        f"database is at revision {head_revision()}",
    ]
