"""A pasted config: carried in links, read in whichever format, priced in the baseline's place."""

import base64
import json
import zlib

import pytest

from api.dashboard.comparison_view import comparison_view
from api.dashboard.pasted_config import packed, pasted_config, unpacked
from planner.errors import InputError
from tests.builders import a_plan

JSON = json.dumps({"tensor_parallel_degree": 2, "data_parallel_degree": 4})
MEGATRON = (
    "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 1 --micro-batch-size 1 "
    "--global-batch-size 16 --bf16"
)
TOML = "[parallelism]\ntensor_parallel_degree = 2\n[training]\nlocal_batch_size = 1\n"


@pytest.mark.parametrize("text", [JSON, MEGATRON, "größer\n" * 100])
def test_a_link_holds_the_text(text):
    link = packed(text)
    assert link.isascii()
    assert unpacked(link) == text


def test_a_short_text_may_stand_in_the_link_as_it_is():
    assert unpacked(JSON) == JSON


@pytest.mark.parametrize("link", ["z.", "z.!!", "z.AAAA", packed(JSON)[:-8]])
def test_a_damaged_link_is_refused(link):
    with pytest.raises(InputError, match="damaged"):
        unpacked(link)


def test_a_link_that_unpacks_to_very_much_is_refused():
    bomb = base64.urlsafe_b64encode(zlib.compress(b"0" * 10_000_000)).decode().rstrip("=")
    with pytest.raises(InputError, match="damaged"):
        unpacked(f"z.{bomb}")


def test_a_text_that_no_link_holds_is_refused():
    with pytest.raises(InputError, match="too long"):
        packed("x" * 200_000)


@pytest.mark.parametrize("text", [JSON, MEGATRON, TOML], ids=["ours", "megatron", "torchtitan"])
def test_formats_are_told_apart_and_priced(text):
    found = pasted_config(text, a_plan())
    assert found.problem is None, found.problem
    assert found.estimate.strategy.tensor_parallel_degree == 2
    assert found.estimate.strategy.world_size == 8


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ('{"tensor_parallel_degree": 3}', "3"),
        ('{"tensor_parallel_degree": "many"}', "tensor_parallel_degree"),
        ("hello", "config"),
    ],
)
def test_what_is_wrong_is_told_and_the_text_kept(text, told):
    found = pasted_config(text, a_plan())
    assert found.text == text
    assert told in str(found.problem)


def test_a_config_is_a_column_without_a_certificate_that_cannot_lead():
    plan = a_plan()
    price = pasted_config(JSON, plan).estimate
    view = comparison_view([plan], shown="all", config=price, link=packed(JSON))
    own = view.columns[1]
    assert (own.name, own.plan_id, own.baseline_url) == ("Your config", None, None)
    assert "config=z." in view.toggle_url
