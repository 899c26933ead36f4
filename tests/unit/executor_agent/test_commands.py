"""Commands: data becomes arguments of a process, and only what the node allows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from executor.agent.commands import Place, argument_values, check_template, command_of
from executor.agent.configuration import ArgumentRule, CommandTemplate
from executor.agent.errors import AgentError
from tests.unit.executor_agent.leases import a_folder, a_lease

ALONE = Place(
    node_rank=0, node_count=1, local_ranks=2, master_address="127.0.0.1", master_port=29400
)


def test_a_value_stays_one_argument_whatever_it_holds(tmp_path: Path) -> None:
    template = CommandTemplate(
        argv=("echo", "--text={text}", "{text}"), arguments={"text": ArgumentRule(pattern=".*")}
    )
    lease = a_lease(arguments={"text": "a b; rm -rf / $(id) {plan}"})
    command = command_of(lease, template, ALONE, folder=a_folder(tmp_path), checkpoint=tmp_path)
    assert command.argv == (
        "echo",
        "--text=a b; rm -rf / $(id) {plan}",
        "a b; rm -rf / $(id) {plan}",
    )


@pytest.mark.parametrize("value", ["--device", "a/../b", "two words", "-1", ""])
def test_without_a_pattern_a_value_is_neither_option_nor_path(value: str) -> None:
    template = CommandTemplate(argv=("x", "{name}"), arguments={"name": ArgumentRule()})
    with pytest.raises(AgentError, match=r"arguments\.name: does not match"):
        argument_values(a_lease(arguments={"name": value}), template)


def test_an_argument_that_the_node_does_not_know_is_refused() -> None:
    template = CommandTemplate(argv=("x",))
    with pytest.raises(
        AgentError, match=r"arguments\.steps: is not an argument of the command train"
    ):
        argument_values(a_lease(arguments={"steps": 5}), template)


def test_an_argument_without_a_default_must_be_given() -> None:
    template = CommandTemplate(argv=("x",), arguments={"data": ArgumentRule()})
    with pytest.raises(AgentError, match="has no default on this node"):
        argument_values(a_lease(), template)


def test_numbers_and_truth_values_become_text() -> None:
    rules = {"steps": ArgumentRule(default=20), "fast": ArgumentRule(default=False)}
    template = CommandTemplate(argv=("x",), arguments=rules)
    values = argument_values(a_lease(arguments={"fast": True}), template)
    assert values == {"steps": "20", "fast": "true"}


def test_several_nodes_are_launched_where_the_lease_places_them(tmp_path: Path) -> None:
    place = Place(
        node_rank=1, node_count=2, local_ranks=2, master_address="10.0.0.1", master_port=29405
    )
    template = CommandTemplate(argv=("{launcher}", "--steps", "5"))
    folder = a_folder(tmp_path)
    argv = command_of(a_lease(), template, place, folder=folder, checkpoint=tmp_path).argv
    assert argv == (
        *(sys.executable, "-m", "executor.launcher", str(folder.path / "plan.json")),
        *("--report", str(folder.path / "report.json"), "--nodes", "2", "--node-rank", "1"),
        *("--local-ranks", "2", "--master", "10.0.0.1:29405", "--meeting", "run-1-3"),
        *("--steps", "5"),
    )


def test_ranks_are_told_where_to_write_and_to_go_on(tmp_path: Path) -> None:
    folder = a_folder(tmp_path)
    template = CommandTemplate(argv=("x",), environment={"RUN": "{run}/{attempt}"})
    command = command_of(a_lease(), template, ALONE, folder=folder, checkpoint=tmp_path / "c")
    assert command.environment == {
        "MESHWRIGHT_METRICS": str(folder.path / "metrics.jsonl"),
        "MESHWRIGHT_REFUSAL": str(folder.path / "refusal"),
        "MESHWRIGHT_CHECKPOINT": str(tmp_path / "c"),
        "MESHWRIGHT_RESUME": "1",
        "MESHWRIGHT_RUN": "run-1",
        "MESHWRIGHT_GRACE_SECONDS": "30.0",
        "PYTHONUNBUFFERED": "1",
        "RUN": "run-1/2",
    }


def test_a_template_that_names_nothing_known_is_refused_at_the_start() -> None:
    with pytest.raises(AgentError, match=r"commands\.train: is neither built in nor one"):
        check_template("train", CommandTemplate(argv=("x", "{stpes}")))
