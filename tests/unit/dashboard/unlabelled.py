"""What the page of a plan gets beside its view where nobody gave it a name, notes or tags."""

from __future__ import annotations

from typing import Any

from api.dashboard.label_form import label_form
from planner.schema.service import PlanLabels

UNLABELLED: dict[str, Any] = {
    "labels": PlanLabels(),
    "form": label_form(PlanLabels()),
    "complaints": {},
    "owner": None,
}
