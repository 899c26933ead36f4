"""The example repository for users' CI: it passes, and fails once its config stops fitting."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml

from planner.cli.app import invoke

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "ci"
SCHEMAS = {
    "github-workflow.yml": ["vendor.github-workflows"],
    "gitlab-ci.yml": ["vendor.gitlab-ci", "--data-transform", "gitlab-ci"],
}


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A copy of the example, as the directory that CI works in."""
    copy = tmp_path / "repository"
    shutil.copytree(EXAMPLE, copy)
    monkeypatch.chdir(copy)
    return copy


def the_step() -> str:
    """Return the command that both CI files run."""
    workflow = yaml.safe_load((EXAMPLE / "github-workflow.yml").read_text(encoding="utf-8"))
    steps = [step.get("run", "") for step in workflow["jobs"]["check"]["steps"]]
    (step,) = [run for run in steps if run.startswith("meshwright check")]
    gitlab = yaml.safe_load((EXAMPLE / "gitlab-ci.yml").read_text(encoding="utf-8"))
    assert step in gitlab["check-plan"]["script"]
    return step


def run_step(repository: Path) -> tuple[int, list[str]]:
    """Return the exit code of CI's step, and which cases its JUnit report has as failed."""
    code = invoke(the_step().split()[1:])
    report = ET.parse(repository / "meshwright.xml")  # noqa: S314 - we wrote it
    failed = [
        str(case.get("name")) for case in report.iter("testcase") if len(case.findall("failure"))
    ]
    return code, failed


def test_the_example_passes(repository):
    assert run_step(repository) == (0, [])


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        (("job.yaml", "sequence_length: 8192", "sequence_length: 65536"), ["fits"]),
        (("config.json", '"num_attention_heads": 32', '"num_attention_heads": 31'), None),
        (("cluster.yaml", "devices_per_node: 8", "devices_per_node: 6"), ["legal"]),
        (("strategy.yaml", "zero_stage: 3", "zero_stage: 0"), ["fits"]),
    ],
)
def test_the_example_fails_once_its_config_stops_fitting(repository, change, failed):
    file, before, after = change
    path = repository / file
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after), encoding="utf-8")

    if failed is None:  # a model that cannot be: nothing to report on
        assert invoke(the_step().split()[1:]) == 1
        return
    assert run_step(repository) == (3, failed)


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_ci_files_are_of_their_formats(name):
    schema = ["--builtin-schema", *SCHEMAS[name]]
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", *schema, str(EXAMPLE / name)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout


def test_the_documentation_shows_the_same_files():
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")

    for name in SCHEMAS:
        assert (EXAMPLE / name).read_text(encoding="utf-8") in page
