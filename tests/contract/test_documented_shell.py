"""Commands that the documentation shows outside its consoles: run here, or said who runs them.

Those of consoles are run by `test_documentation.py`. An engine for containers is not to be had in
these tests: what `docker compose` reads is held against its schema, in `test_deployment.py`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path

import httpx
import pytest

from tests.contract.api.processes import serving, until

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^[ ]*```(\w*)\n(.*?)^[ ]*```", re.MULTILINE | re.DOTALL)
MAKE = re.compile(r"`make ([a-z][a-z-]*)[^`]*`")
KEY = re.compile(r"mw_[\w-]+")
HEAD = "http://HEAD:8000"

RUN_ELSEWHERE = {  # first words, and the file that runs what they begin, or what reads it instead
    "make": "tests/contract/test_documented_shell.py",
    "docker": "tests/unit/api/test_deployment.py",
    "dask": "tests/dask_cluster.py",
    "MESHWRIGHT_DASK_SCHEDULER=": "tests/contract/api/test_dask.py",
    "cd examples/ci": "tests/contract/test_ci_example.py",
    "meshwright check": "tests/contract/test_ci_example.py",
    "meshwright agent run": "tests/contract/test_documented_shell.py",
    "meshwright serve": "tests/contract/test_cli_commands.py",
    "meshwright keys": "tests/contract/test_documented_shell.py",
    "meshwright audit": "tests/contract/test_documented_shell.py",
    "meshwright db": "tests/contract/test_documented_shell.py",
    "meshwright agent enrol": "tests/unit/executor_agent/test_configuration.py",
    "meshwright agent token": "tests/contract/api/test_fleet.py",
    "meshwright run": "tests/contract/api/test_fleet.py",
    "meshwright tune": "tests/contract/test_cli_tune.py",
    "meshwright plan": "tests/contract/test_cli_commands.py",
    "MESHWRIGHT_KEY=": "tests/contract/api/test_fleet.py",
    "curl": "tests/contract/test_documented_shell.py",
    "MESHWRIGHT_SCREENSHOTS=": "tests/browser/test_screenshots.py",
}
OTHERS_TOOLS = {  # on machines with GPUs, a Slurm or a Kubernetes: their output is a sample here
    "nvidia-smi": "topo-nvlink.txt",
    "rocm-smi": "rocm-topo.txt",
    "scontrol": "scontrol-show-node-cloud.txt",
    "kubectl": "nodes.json",
    "NCCL_TOPO_DUMP_FILE=": "nccl-topology.xml",
}
NEEDS_CURL = pytest.mark.skipif(shutil.which("curl") is None, reason="no curl is installed")
RESULTS = ("loss ", "rounds ")  # what the demo and the rounds of faults print, with no command
WAITS = 60  # of ten seconds, against a hang alone
MADE_IN_CI = {"docs", "test", "test-exports", "test-kernels", "test-wheel"}


def commands_of(page: Path) -> list[str]:
    """Return the shell's lines in a page's blocks without a language, continued ones as one."""
    lines: list[str] = []
    for language, block in FENCE.findall(page.read_text(encoding="utf-8")):
        if language or block.lstrip().startswith(RESULTS):
            continue
        text = textwrap.dedent(block).replace("\\\n", " ")
        lines += [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
    return [line for line in lines if is_command(line)]


def is_command(line: str) -> bool:
    """Return whether a line begins as a command does, and not as output or a file's field."""
    return re.match(r"(?:[A-Z_]+=\S+ )?[a-z][a-z-]+ \S", line) is not None and " = " not in line


def begins(line: str, words: str) -> bool:
    """Return whether a command begins with `words`."""
    return line == words or line.startswith(words if words.endswith("=") else f"{words} ")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_is_run_somewhere_or_another_s_tool(page):
    known = [*RUN_ELSEWHERE, *OTHERS_TOOLS, "export"]
    unknown = [line for line in commands_of(page) if not any(begins(line, w) for w in known)]
    assert unknown == []


def test_what_runs_or_stands_for_them_is_there():
    samples = ROOT / "tests/unit/importers/samples"
    assert [path for path in RUN_ELSEWHERE.values() if not (ROOT / path).exists()] == []
    assert [name for name in OTHERS_TOOLS.values() if not (samples / name).exists()] == []
    assert '"docker-compose.yml"' in (ROOT / RUN_ELSEWHERE["docker"]).read_text(encoding="utf-8")


def made() -> set[str]:
    """Return the targets that any page names."""
    named = {target for page in PAGES for target in MAKE.findall(page.read_text(encoding="utf-8"))}
    shown = {
        line.split()[1] for page in PAGES for line in commands_of(page) if begins(line, "make")
    }
    return named | shown


@pytest.mark.parametrize("target", sorted(made()))
def test_make_knows_what_to_do_for_every_target_that_a_page_names(target):
    """The command lines alone: `make demo` is run as the command that it is, the others by CI."""
    done = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", target],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


def test_continuous_integration_makes_the_documentation_and_all_tests_that_take_minutes():
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert set(re.findall(r"\bmake ([a-z][a-z-]*)", script)) == MADE_IN_CI


def run(command: list[str], **environment: str) -> str:
    """Return what a command prints; it has to succeed."""
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def meshwright(line: str, **environment: str) -> str:
    """Return what a page's `meshwright` command prints."""
    program, *words = shlex.split(line)
    assert program == "meshwright"
    return run([sys.executable, "-m", "planner.cli", *words], **environment)


def curl(line: str, url: str) -> dict:
    """Return what a page's `curl` line is answered by the service at `url`."""
    here = re.sub(r"http://(?:HEAD|127\.0\.0\.1):8000", url, line)
    answer = run([*shlex.split(here), "--fail-with-body"])
    return json.loads(answer)


def planned(line: str, url: str) -> dict:
    """Return the plan that a page's `curl` line asks for; who asks again waits again."""
    for _ in range(WAITS):
        answer = curl(line, url)
        if "certificate" in answer:
            return answer
    pytest.fail(f"no plan in {WAITS} waits: {answer}")


@NEEDS_CURL
@pytest.mark.slow
def test_the_service_answers_as_its_page_shows(tmp_path):
    lines = commands_of(ROOT / "docs/service.md")
    database = f"sqlite:///{tmp_path / 'service.db'}"
    with serving(tmp_path, database_url=database) as service:
        (asked,) = [line for line in lines if begins(line, "curl")]
        plan = planned(asked, service.url)
        # The search's own limit of time cuts a proof short on a machine that is loaded enough.
        assert plan["certificate"]["status"] in {"optimal", "feasible"}
        made = ""
        for line in lines:
            if begins(line, "meshwright keys") or begins(line, "meshwright audit"):
                named = KEY.sub(made, line) if made else line
                said = meshwright(named, MESHWRIGHT_DATABASE_URL=database)
                made = made or KEY.findall(said)[0][:11]
                assert said.strip(), line


@contextmanager
def an_agent(client: httpx.Client, directory: Path, **environment: str) -> Iterator[str]:
    """Start an agent by the command of the empty page of agents; give the name that it has."""
    page = unescape(client.get("/agents", headers={"Accept": "text/html"}).text)
    (command,) = re.findall(r">(meshwright agent run .*)</pre>", page)
    program = directory / "meshwright"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m planner.cli "$@"\n', encoding="utf-8")
    program.chmod(0o700)
    path = f"{directory}:{os.environ['PATH']}"
    own = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, **environment}
    with subprocess.Popen(["/bin/sh", "-c", f"exec {command}"], env=own) as agent:
        try:
            until(
                lambda: agent.poll() is not None or bool(client.get("/v1/agents").json()["items"])
            )
            assert agent.poll() is None
            (found,) = client.get("/v1/agents").json()["items"]
            yield found["report"]["name"]
        finally:
            agent.terminate()


@NEEDS_CURL
@pytest.mark.slow
def test_an_operator_gets_from_a_database_to_a_run_as_the_page_shows(tmp_path):
    lines = commands_of(ROOT / "docs/operations.md")
    database = f"sqlite:///{tmp_path / 'service.db'}"
    wanted = ("db", "keys", "plan", "run")
    upgrade, create, plan, start = (
        next(line for line in lines if begins(line, f"meshwright {words}")) for words in wanted
    )
    meshwright(upgrade, MESHWRIGHT_DATABASE_URL=database)
    key = max(KEY.findall(meshwright(create, MESHWRIGHT_DATABASE_URL=database)), key=len)
    with serving(tmp_path, database_url=database) as service:
        here = {"MESHWRIGHT_KEY": key, "HOME": str(tmp_path)}
        authorized = service.client(Authorization=f"Bearer {key}")
        with authorized as client, an_agent(client, tmp_path, **here) as name:
            assert name == socket.gethostname()
        start = start.replace(HEAD, service.url)
        file = str(tmp_path / "plan.json")
        meshwright(plan.replace("plan.json", file), **here)
        named = meshwright(f"{start.replace('plan.json', file)} --detach", **here)
        runs = curl(f"curl -s -H 'Authorization: Bearer {key}' {HEAD}/v1/runs", service.url)
        assert [run["id"] for run in runs["items"]] == [named.strip()]
