"""The model graph's page: its examples plan, and it names every type that is read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import planner.planning as planner
from planner.importers.clusters import cluster_from_short_form
from planner.importers.hugging_face.config_json import model_types
from planner.importers.models import model_from_fields
from planner.requests.resolution import cluster_document, model_document
from planner.schema.plan import Plan
from tests.builders import a_job

PAGE = (Path(__file__).parents[2] / "docs" / "model-graph.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = {fields["name"]: fields for fields in map(yaml.safe_load, FENCE.findall(PAGE))}


def test_there_is_an_example_of_each_kind_of_chain():
    assert set(EXAMPLES) == {
        "small-alternating",
        "small-vision-language",
        "small-translator",
        "small-hybrid",
    }


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_plans_on_eight_devices(name):
    graph = model_from_fields(EXAMPLES[name], name=name)
    job = a_job(global_batch_size=64, sequence_length=1024)
    cluster = "8xh100-sxm5-80gb"
    answer = planner.plan(
        model_document(EXAMPLES[name], graph),
        cluster_document(cluster, cluster_from_short_form(cluster)),
        job,
    )
    assert isinstance(answer, Plan)
    assert answer.prediction.fits


def test_every_type_that_can_be_read_is_named():
    (section,) = re.findall(r"of these types: (.*?)\.\s+What", PAGE, re.DOTALL)
    assert tuple(section.replace("\n", " ").split(", ")) == model_types()
