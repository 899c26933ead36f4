"""Interpreters for `make test-pythons`: found where they start, and named where there is none."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.wheel import pythons

ROOT = Path(__file__).parents[2]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine without interpreters, and what puts one there that says its version."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setattr(pythons, "VERSIONS", ("3.98", "3.99"))

    def put(place: str, *, says: str = "", status: int = 0) -> Path:
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho '{says}'\nexit {status}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    return put


def test_an_interpreter_on_the_path_is_found(machine):
    path = machine("bin/python3.98", says="3.98")
    machine("pyenv/versions/3.98.1/bin/python3.98", says="3.98")
    assert pythons.interpreter("3.98") == path


def test_a_shim_that_does_not_start_gives_way_to_pyenvs_own(machine):
    machine("bin/python3.98", status=127)
    machine("pyenv/versions/3.99.0/bin/python3.99", says="3.99")
    path = machine("pyenv/versions/3.98.1/bin/python3.98", says="3.98")
    assert pythons.interpreter("3.98") == path


def test_an_interpreter_of_another_version_is_none(machine):
    machine("bin/python3.98", says="3.99")
    assert pythons.interpreter("3.98") is None


def test_absent_interpreters_are_named_and_nothing_tested_is_a_failure(machine, capsys):
    machine("bin/python3.99", status=127)
    assert pythons.main([]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"Python {version}: not tested, and not claimed: python{version} is neither on the PATH "
        "nor among pyenv's"
        for version in ("3.98", "3.99")
    ]


def test_claimed_versions_are_tried_and_the_page_says_when_they_passed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    claimed = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^Passed on \d{4}-\d\d-\d\d, .*\.$", page, re.MULTILINE)
    assert re.findall(r"\b(3\.\d+)\.\d+", line) == claimed
    assert set(claimed) <= set(pythons.VERSIONS)
    assert claimed[0] == project["requires-python"].removeprefix(">=")
