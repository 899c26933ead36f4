"""`meshwright models` and `meshwright devices`: what is known by name."""

from __future__ import annotations

import json as json_format

import typer

from planner.cli.console import stdout
from planner.cli.options import JsonOption


def models(json: JsonOption = False) -> None:
    """List the models that are known by name."""
    from planner.cli.views.catalogue import model_facts, models_view

    facts = model_facts()
    if json:
        typer.echo(json_format.dumps({"models": facts}, indent=2))
    else:
        stdout().print(models_view(facts))


def devices(json: JsonOption = False) -> None:
    """List the devices that have a profile."""
    from planner.cli.views.catalogue import device_facts, devices_view

    facts = device_facts()
    if json:
        typer.echo(json_format.dumps({"devices": facts}, indent=2))
    else:
        stdout().print(devices_view(facts))
