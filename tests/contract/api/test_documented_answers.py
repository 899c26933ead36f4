"""The examples of the description are what the service takes and answers, with the real planner."""

from __future__ import annotations

import json

import pytest

from api.description import EXAMPLES_FOLDER
from api.services.planner import the_planner
from tests.contract.api.documented_answers import documented_answers


def shape(value):
    """Return the fields of a document with the kinds of their values; of a list, those of one.

    How far a search was seen to be depends on the machine.
    """
    if isinstance(value, dict):
        return {name: name == "progress" or shape(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value[:1]]
    return "number" if type(value) in {int, float} else type(value).__name__


@pytest.mark.slow
@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)
def test_the_service_answers_what_its_description_shows(make_client):
    """Else: python -m tests.contract.api.documented_answers, and then api.openapi."""
    with make_client(planner=the_planner()) as client:
        answers = documented_answers(client)

    shown = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in EXAMPLES_FOLDER.iterdir()
    }
    assert shape(shown) == shape(answers)
