"""Destinations of a plan: every target stands there, with its losses or its refusal."""

from __future__ import annotations

from planner.cli.views.destinations import destination_lines
from planner.exporters.destinations import destinations
from planner.exporters.registry import TARGETS, export
from planner.schema.plan import Destination
from planner.schema.strategy import Strategy
from tests.unit.exporters.plans import plan_of

PIPELINED = Strategy(pipeline_parallel_degree=2, data_parallel_shard_degree=4, zero_stage=1)


def test_every_target_stands_there_once() -> None:
    found = destinations(plan_of(PIPELINED))
    assert tuple(place.target for place in found) == TARGETS


def test_a_target_has_its_exports_losses_or_why_it_refuses() -> None:
    plan = plan_of(PIPELINED, optimizer="adafactor")
    found = {place.target: place for place in destinations(plan)}
    assert found["megatron-lm"].losses == export(plan, "megatron-lm").losses != ()
    assert found["megatron-lm"].refusal is None
    (scripted,) = found["torchrun"].losses
    assert scripted == "optimizer adafactor, which the plan counts on, is for the script to do"
    assert str(found["deepspeed"].refusal).startswith("strategy.pipeline_parallel_degree: ")


def test_two_lines_say_where_a_plan_goes_and_what_to_plan_again() -> None:
    places = [
        Destination(target="torchrun"),
        Destination(target="torchtitan", losses=("one",)),
        Destination(target="megatron-lm", losses=("one", "two")),
        Destination(target="deepspeed", refusal="no"),
        Destination(target="hf-trainer", refusal="no"),
    ]
    opened, closed = destination_lines(places)
    assert opened == "  exports to torchrun, torchtitan (1 loss), megatron-lm (2 losses)"
    assert closed == (
        "  not to deepspeed, hf-trainer: plan again with --framework deepspeed, which "
        "`meshwright compare-frameworks` prices"
    )


def test_a_plan_of_an_earlier_document_says_nothing_of_them() -> None:
    assert list(destination_lines(())) == []
    assert "destinations" not in plan_of(PIPELINED).to_json()
