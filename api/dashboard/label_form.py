"""The form on a plan's page for its name, notes and tags: what was typed, and what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import ConfigDict, Field, ValidationError

from api.schemas import PlanLabelsChange, WirePart
from api.services.records import labels_tag
from planner.schema.service import PlanLabels

_RULES: Mapping[str, str] = {
    "name": "must be one line of at most 200 printable characters, or empty",
    "tags": "must be at most 20 words of at most 40 printable characters each",
    "notes": "must be at most 2,000 printable characters; line breaks are fine",
}
TypedText = Annotated[str, Field(max_length=20_000)]


class LabelForm(WirePart):
    """What was typed; `seen` is the tag of the labels that it was typed over."""

    model_config = ConfigDict(extra="ignore")

    name: TypedText = ""
    tags: TypedText = ""
    notes: TypedText = ""
    seen: TypedText = ""


def label_form(labels: PlanLabels) -> LabelForm:
    """Return the form filled in with `labels`."""
    return LabelForm(
        name=labels.name or "",
        tags=" ".join(labels.tags),
        notes=labels.notes,
        seen=labels_tag(labels),
    )


def read_labels(form: LabelForm) -> PlanLabelsChange | Mapping[str, str]:
    """Return the labels that the form spells, or what is wrong in it by field."""
    fields = {
        "name": form.name.strip() or None,
        "tags": form.tags.replace(",", " ").split(),
        "notes": form.notes.replace("\r\n", "\n").strip(),
    }
    try:
        return PlanLabelsChange.model_validate(fields)
    except ValidationError as error:
        wrong = {str(each["loc"][0]) for each in error.errors()}
        return {name: rule for name, rule in _RULES.items() if name in wrong}
