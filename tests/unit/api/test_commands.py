"""`python -m api` and `python -m api upgrade`: refusals are one line, not a traceback."""

from __future__ import annotations

import pytest

from api.__main__ import main


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
    line = failure(HOST="0.0.0.0")  # noqa: S104 - it is refused

    assert "MESHWRIGHT_HOST" in line
    assert "no authentication" in line


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
        "database went from nothing to revision 0001",
        "database is at revision 0001",
    ]
