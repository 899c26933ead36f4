"""Short names of devices: each means one alone, or is refused with those that it may mean."""

from __future__ import annotations

import pytest

from planner.errors import InputError
from planner.hardware import device_names
from planner.importers.cluster.known_devices import devices_fitting, known_device


def beginnings(name: str) -> list[str]:
    """The beginnings of a name that end with a word: a100, a100-sxm4, a100-sxm4-40gb."""
    words = name.split("-")
    return ["-".join(words[: end + 1]) for end in range(len(words))]


OF_NO_BRAND = [n for n in device_names() if not n.startswith(("rtx-", "tpu-", "ascend-"))]


@pytest.mark.parametrize("name", device_names())
def test_every_name_means_itself(name):
    assert known_device(name, field="cluster").name == name
    assert known_device(name, field="cluster").assumption is None


@pytest.mark.parametrize("name", OF_NO_BRAND)
def test_every_beginning_of_a_name_means_it_or_is_ambiguous(name):
    for short in beginnings(name):
        fits = devices_fitting(short)
        assert name in fits
        if len(fits) == 1:
            assert known_device(short, field="cluster").name == name


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("h100", "h100-sxm5-80gb"),
        ("H100", "h100-sxm5-80gb"),
        ("h100-sxm", "h100-sxm5-80gb"),
        ("h100-80gb", "h100-sxm5-80gb"),
        ("h100-pcie", "h100-pcie-80gb"),
        ("h100-nvl", "h100-nvl-94gb"),
        ("nvidia-h100", "h100-sxm5-80gb"),
        ("h200", "h200-sxm5-141gb"),
        ("h20", "h20-sxm-96gb"),
        ("h800", "h800-sxm5-80gb"),
        ("a100-40gb", "a100-sxm4-40gb"),
        ("a100-80gb", "a100-sxm4-80gb"),
        ("a100_80g", "a100-sxm4-80gb"),
        ("a800", "a800-sxm4-80gb"),
        ("b200", "b200-sxm-180gb"),
        ("b300", "b300-sxm-288gb"),
        ("gb200", "gb200-nvl72"),
        ("gb300", "gb300-nvl72"),
        ("gh200", "gh200-96gb"),
        ("mi250x", "mi250x-128gb"),
        ("mi300x", "mi300x-192gb"),
        ("mi325x", "mi325x-256gb"),
        ("mi350x", "mi350x-288gb"),
        ("mi355x", "mi355x-288gb"),
        ("l4", "l4-24gb"),
        ("l40s", "l40s-48gb"),
        ("t4", "t4-16gb"),
        ("v100-32gb", "v100-sxm2-32gb"),
        ("v100-16gb", "v100-sxm2-16gb"),
        ("a10", "a10-24gb"),
        ("a10g", "a10g-24gb"),
        ("a30", "a30-24gb"),
        ("a40", "a40-48gb"),
        ("mi210", "mi210-64gb"),
        ("mi300a", "mi300a-128gb"),
        ("gaudi2", "gaudi2-96gb"),
        ("gaudi3", "gaudi3-128gb"),
        ("trainium2", "trainium2-96gb"),
        ("v100_pcie_32gb", "v100-pcie-32gb"),
        ("h200-nvl", "h200-nvl-141gb"),
        ("l20", "l20-48gb"),
        ("tpu-v4", "tpu-v4-32gb"),
        ("v5e", "tpu-v5e-16gb"),
        ("tpu-v5p", "tpu-v5p-95gb"),
        ("v6e", "tpu-v6e-32gb"),
        ("ascend-910b", "ascend-910b-64gb"),
        ("4090", "rtx-4090-24gb"),
        ("rtx4090", "rtx-4090-24gb"),
        ("4090d", "rtx-4090d-24gb"),
        ("5090", "rtx-5090-32gb"),
        ("a5000", "rtx-a5000-24gb"),
        ("pro-6000", "rtx-pro-6000-96gb"),
        ("geforce-rtx-3090", "rtx-3090-24gb"),
        ("a6000", "rtx-a6000-48gb"),
        ("6000-ada", "rtx-6000-ada-48gb"),
        ("titan-rtx", "titan-rtx-24gb"),
    ],
)
def test_a_short_name_is_taken_and_said_to_be(text, device):
    found = known_device(text, field="cluster")
    assert found.name == device
    assert f"{text.lower()} was taken as {device}" in str(found.assumption)


def test_the_board_is_taken_where_cards_of_the_model_are_sold_too_and_the_cards_are_named():
    assert known_device("h100", field="cluster").assumption == (
        "h100 was taken as h100-sxm5-80gb; cards are h100-nvl-94gb and h100-pcie-80gb"
    )


@pytest.mark.parametrize("text", ["a100", "a100-sxm", "a100-sxm4"])
def test_an_a100_of_unknown_memory_is_refused_with_those_that_there_are(text):
    with pytest.raises(InputError, match=r"a100-sxm4-40gb or a100-sxm4-80gb"):
        known_device(text, field="cluster")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("v100", "v100-sxm2-16gb or v100-sxm2-32gb"),
        ("a100-pcie", "a100-pcie-40gb or a100-pcie-80gb"),
    ],
)
def test_two_memories_of_one_device_are_both_named(text, named):
    with pytest.raises(InputError, match=named):
        known_device(text, field="cluster")


@pytest.mark.parametrize("text", ["l40", "mi300", "a1", "rtx", "sxm5", "80gb", "abacus", "h1000"])
def test_what_is_no_profiles_name_is_refused(text):
    with pytest.raises(InputError, match="has no profile"):
        known_device(text, field="cluster")
