"""Documentation: its commands run, its links lead somewhere, and it knows every command.

What pages show outside their consoles (curl, make, docker) is `test_documented_shell.py`'s.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from planner.cli.app import app, invoke
from tests.calibration_rows import TRUTH, measured_fields

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^```yaml\n(# ([\w.-]+\.yaml)\b.*?)^```", re.MULTILINE | re.DOTALL)
ANY_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
SAMPLES = ROOT / "tests/unit/importers/samples"
GIVEN = {  # files that a page's commands name and no command of it writes
    "all_reduce-8.txt": SAMPLES / "all_reduce-8.txt",
    "all_reduce-32.txt": SAMPLES / "all_reduce-32.txt",
    "config.json": ROOT / "profiles/models/llama-3-8b.json",
    "nodes.json": SAMPLES / "nodes.json",
    "nodes.txt": SAMPLES / "scontrol-show-node.txt",
    "topo.txt": SAMPLES / "topo-nvlink.txt",
    "topo.xml": SAMPLES / "nccl-topology.xml",
}


RUN_ELSEWHERE = {  # commands that a page shows outside its consoles, and who runs them
    "check": "tests/contract/test_ci_example.py",
    "tune": "tests/contract/test_cli_tune.py",
    "audit": "tests/unit/api/test_commands.py",
    "keys": "tests/unit/api/test_commands.py",
}


REPLACES_ITS_PROCESS = {"run"}
TAKEN_FROM_ITS_CONSOLE = {"tune"}  # by its test above, as the page shows it


def in_its_own_process(words):
    """Return the exit code of a command."""
    command = [sys.executable, "-m", "planner.cli", *words]
    return subprocess.run(command, check=False, timeout=800).returncode


def commands_of(page):
    """Return the commands of a page's consoles, in order."""
    blocks = FENCE.findall(page.read_text(encoding="utf-8"))
    lines = (line for block in blocks for line in block.splitlines())
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


WITH_COMMANDS = [page for page in PAGES if commands_of(page)]


def test_there_are_commands_to_run():
    assert sum(len(commands_of(page)) for page in WITH_COMMANDS) >= 20


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.stem)
def test_documented_commands_run_in_order_and_print_something(page, tmp_path, monkeypatch, capfd):
    lines = map(json.dumps, measured_fields(TRUTH, noise=0.03))
    (tmp_path / "runs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    for name, source in GIVEN.items():
        shutil.copy(source, tmp_path / name)
    for content, name in FILE.findall(page.read_text(encoding="utf-8")):
        (tmp_path / name).write_text(content, encoding="utf-8")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for command in commands_of(page):
        program, *words = shlex.split(command)
        assert program == "meshwright"
        if words[0] in TAKEN_FROM_ITS_CONSOLE:
            continue
        exit_code = in_its_own_process(words) if words[0] in REPLACES_ITS_PROCESS else invoke(words)
        said = capfd.readouterr()
        assert exit_code == 0, f"{command}\n{said.err}"
        assert said.out.strip(), command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_command_that_no_console_shows_is_run_by_another_test(page):
    """A console's are run above; others need a service, or a repository of their own."""
    text = page.read_text(encoding="utf-8")
    blocks = [block for kind, block in ANY_FENCE.findall(text) if kind != "console"]
    lines = [line.strip().lstrip("- ") for block in blocks for line in block.splitlines()]
    shown = {line.removeprefix("run: ") for line in lines if "meshwright " in line}
    names = {line.split()[1] for line in shown if line.startswith("meshwright ")}
    assert names <= set(RUN_ELSEWHERE)
    for name in names:
        assert f'"{name}"' in (ROOT / RUN_ELSEWHERE[name]).read_text(encoding="utf-8")


@pytest.mark.slow
def test_examples_in_python_run_in_order(tmp_path):
    """What the page of the Python interface shows, as one program."""
    page = (ROOT / "docs/python-api.md").read_text(encoding="utf-8")
    examples = PYTHON.findall(page)
    assert len(examples) >= 5
    program = tmp_path / "program.py"
    program.write_text("\n".join(examples), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "optimal" in done.stdout


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
    commands = list(typer.main.get_group(app).commands.values())
    while commands:
        command = commands.pop()
        known |= {name for parameter in command.params for name in parameter.opts}
        commands.extend(getattr(command, "commands", {}).values())
    page = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    scripts_own = {"--lr"}
    assert set(OPTION.findall(page)) - known - scripts_own == set()
