"""Documentation: its commands run, its links lead somewhere, and it knows every command."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from planner.cli.app import app
from tests.calibration_rows import TRUTH, measured_fields

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
COMMANDS = [
    line.removeprefix("$ ")
    for page in PAGES
    for block in FENCE.findall(page.read_text(encoding="utf-8"))
    for line in block.splitlines()
    if line.startswith("$ ")
]


def test_there_are_commands_to_run():
    assert len(COMMANDS) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_documented_command_runs_and_prints_something(command, tmp_path):
    program, *words = shlex.split(command)
    assert program == "meshwright"
    if "runs.jsonl" in words:
        lines = map(json.dumps, measured_fields(TRUTH, noise=0.03))
        (tmp_path / "runs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "planner.cli", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_pages_lead_somewhere(page):
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_every_command_has_its_section():
    sections = (ROOT / "docs/cli.md").read_text(encoding="utf-8").lower()
    commands = set(typer.main.get_group(app).commands)
    assert {name for name in commands if f"meshwright {name}" not in sections} == set()


def test_every_option_that_the_page_names_exists():
    known = {"--help"}
    for command in typer.main.get_group(app).commands.values():
        known |= {name for parameter in command.params for name in parameter.opts}
    page = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    scripts_own = {"--lr"}
    assert set(OPTION.findall(page)) - known - scripts_own == set()
