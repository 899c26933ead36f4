"""Configuration and token file: what is wrong is named, and secrets stay secret."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from executor.agent.__main__ import main
from executor.agent.configuration import STARTER, AgentConfiguration, read_configuration
from executor.agent.devices import node_report
from executor.agent.enrolment import read_credentials
from executor.agent.errors import AgentError

SMALL = """
server = "http://127.0.0.1:8000"
work_folder = "{folder}"
[commands.train]
argv = ["true"]
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "agent.toml"
    path.write_text(text.replace("{folder}", str(tmp_path)))
    return path


def configured(tmp_path: Path, more: str = "") -> AgentConfiguration:
    return read_configuration(written(tmp_path, SMALL + more))


def test_the_configuration_that_enrolment_writes_can_be_read(tmp_path: Path) -> None:
    text = STARTER.format(
        server="http://127.0.0.1:8000", name="node-1", address="10.0.0.1",
        work_folder=tmp_path, devices="",
    )  # fmt: skip
    configuration = read_configuration(written(tmp_path, text))
    assert sorted(configuration.commands) == ["train"]
    assert configuration.ports == (29400, 29499)
    assert configuration.commands["train"].arguments["steps"].default == 20


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ('server = "ftp://x"', "server: "),
        ("server = ", "cannot be read: "),
        (
            'server = "http://x"\ncommands.a.argv = ["x"]\ncolour = 1',
            "colour: is not a known field",
        ),
        ('server = "http://x"', "commands: is required"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, change: str, said: str) -> None:
    with pytest.raises(AgentError, match=said):
        read_configuration(written(tmp_path, change))


def test_a_pattern_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="is not a regular expression"):
        configured(tmp_path, '[commands.train.arguments]\nname = { pattern = "[" }\n')


def test_without_a_gpu_the_ranks_of_the_cpu_are_reported(tmp_path: Path) -> None:
    report = node_report(configured(tmp_path, '[devices]\nkind = "cpu"\ncount = 2\n'))
    assert [device.profile for device in report.devices] == ["cpu-gloo", "cpu-gloo"]
    assert report.commands == ("train",)
    assert report.launcher == "local"
    assert report.versions.python is not None
    assert report.host_memory_bytes


def test_gpus_that_are_not_there_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match=r"devices\.count: this node has fewer GPUs"):
        node_report(configured(tmp_path, '[devices]\nkind = "cuda"\ncount = 1024\n'))


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    path = configuration.token_path
    fields = {"agent_id": "a", "token": "t", "server": "http://127.0.0.1:8000"}
    path.write_text(json.dumps(fields))
    path.chmod(0o640)
    with pytest.raises(AgentError, match="others can read the agent's token"):
        read_credentials(configuration)
    path.chmod(0o600)
    assert read_credentials(configuration).agent_id == "a"


def test_a_token_of_another_server_is_refused(tmp_path: Path) -> None:
    configuration = configured(tmp_path)
    path = configuration.token_path
    path.write_text(json.dumps({"agent_id": "a", "token": "t", "server": "http://other"}))
    path.chmod(0o600)
    with pytest.raises(AgentError, match="the token is that of http://other"):
        read_credentials(configuration)


def test_an_agent_that_is_not_enrolled_is_told_how(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="meshwright agent run --server URL --token TOKEN"):
        read_credentials(configured(tmp_path))


@pytest.mark.slow
def test_the_agent_runs_without_torch() -> None:
    code = "import sys, executor.agent.__main__, executor.agent.keeper, executor.agent.slurm_task\n"
    code += "print([name for name in sys.modules if name.partition('.')[0] == 'torch'])"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout == "[]\n"


@pytest.mark.parametrize("words", [["--server", "http://head:8000"], ["--token", "mwe_x"]])
def test_an_agent_that_is_to_enrol_first_is_told_both_server_and_token(words, capsys) -> None:
    assert main(["run", *words]) == 1
    assert capsys.readouterr().err == (
        "error: --server and --token: go together; give both to enrol first, or neither where this "
        "node is enrolled\n"
    )


def test_a_node_that_is_enrolled_uses_no_token_and_keeps_to_its_server(tmp_path, capsys) -> None:
    configuration = configured(tmp_path)
    configuration.token_path.write_text("{}")
    path = tmp_path / "agent.toml"
    assert main(["run", "--server", "http://other", "--token", "t", "--config", str(path)]) == 1
    assert f"--server: the configuration says {configuration.server}" in capsys.readouterr().err
