"""`meshwright models` and `meshwright devices`: what is known by name."""

from __future__ import annotations

import json as json_format

import typer

from planner.cli.console import stdout
from planner.cli.options import JsonOption


def models(json: JsonOption = False) -> None:
    """List the models that are known by name, and the types of config.json that can be read."""
    from planner.cli.views.catalogue import model_facts, models_view
    from planner.importers.hugging_face.config_json import model_types

    facts, types = model_facts(), model_types()
    if json:
        typer.echo(json_format.dumps({"models": facts, "model_types": types}, indent=2))
        return
    stdout().print(models_view(facts))
    typer.echo(f"\nconfig.json of {len(types)} types can be read: {', '.join(types)}")


def devices(json: JsonOption = False) -> None:
    """List the devices that have a profile."""
    from planner.cli.views.catalogue import device_facts, devices_view

    facts = device_facts()
    if json:
        typer.echo(json_format.dumps({"devices": facts}, indent=2))
    else:
        stdout().print(devices_view(facts))
