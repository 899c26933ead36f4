"""What jobs ask for differently, as a comparison of their plans shows it."""

import pytest

from planner.requests.asked import differing_answers
from planner.schema.job import Adapters, DegreeLimit, Limits, Precision
from planner.schema.strategy import Offload
from tests.builders import a_job


def answers(*jobs):
    """Return the differing answers by their paths."""
    return dict(differing_answers(jobs))


def test_what_is_asked_alike_is_left_out():
    assert answers(a_job(), a_job(), a_job()) == {}


def test_fields_are_given_with_the_value_of_every_job():
    found = answers(a_job(), a_job(precision=Precision.FP32, global_batch_size=32), a_job())

    assert found == {
        "global_batch_size": (16, 32, 16),
        "precision": ("bf16", "fp32", "bf16"),
    }


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (DegreeLimit(min=4, max=4), "4"),
        (DegreeLimit(min=2, max=8), "2 to 8"),
        (DegreeLimit(min=2), "at least 2"),
        (DegreeLimit(max=8), "at most 8"),
    ],
)
def test_limits_of_degrees_are_said_in_words(limit, text):
    limits = Limits(tensor_parallel_degree=limit)

    assert answers(a_job(), a_job(limits=limits)) == {
        "limits.tensor_parallel_degree": ("any", text)
    }


def test_lists_are_joined_and_an_empty_one_is_none():
    found = answers(
        a_job(limits=Limits(offload=())),
        a_job(limits=Limits(offload=(Offload.OPTIMIZER, Offload.PARAMETERS))),
    )

    assert found == {"limits.offload": ("none", "optimizer + parameters")}


def test_what_one_job_lacks_is_absent_there():
    found = answers(a_job(), a_job(adapters=Adapters(rank=16)))

    assert found["adapters.rank"] == (None, 16)
