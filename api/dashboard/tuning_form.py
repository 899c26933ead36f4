"""The form that begins a tuning from a plan: what that plan was asked for is asked again."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field

from api.dashboard.run_form import arguments_of, spelled
from api.schemas import WirePart
from api.tuning_schemas import TuningRequest
from planner.schema.agent import CommandName
from planner.schema.plan import Plan
from planner.schema.tuning import TRIALS_MOST, TuningBudget


def _none_if_empty(value: object) -> object:
    return None if value == "" else value


class TuningForm(WirePart):
    """What was typed: arguments are `name=value`, one a line; no minutes are no limit."""

    model_config = ConfigDict(extra="ignore")

    command: CommandName = "train"
    arguments: Annotated[str, Field(max_length=20_000)] = ""
    runs: Annotated[int, Field(ge=1, le=TRIALS_MOST)] = TuningBudget().runs
    minutes: Annotated[
        Annotated[float, Field(gt=0, le=1e6)] | None, BeforeValidator(_none_if_empty)
    ] = None


def tuning_request(plan: Plan, form: TuningForm) -> TuningRequest:
    """Return the request that the form spells.

    Raises:
        InputError: if a line of the arguments is no `name=value`, or a field is not as it must be.
    """
    fields = {
        "model": plan.model.given,
        "cluster": plan.cluster.given,
        "job": plan.job.given,
        "command": form.command,
        "arguments": arguments_of(form.arguments),
        "budget": {"runs": form.runs, "minutes": form.minutes},
    }
    return spelled(TuningRequest, fields)
