"""Parameters that ranks could not split or average as they are are refused by name."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from executor.errors import UnsupportedPlanError
from executor.models.parameter_storage import check_held_once, check_storage


class Two(nn.Module):
    """Two matrices of one shape, and a table."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("table", torch.zeros(4))


def test_content_under_two_names_is_refused() -> None:
    with torch.device("meta"):
        model = Two()
        model.second.weight.data = model.first.weight.data
    with pytest.raises(UnsupportedPlanError, match=r"first\.weight and second\.weight"):
        check_storage(model)


def test_a_buffer_that_is_part_of_a_parameter_is_refused() -> None:
    model = Two()
    model.table = model.first.weight.detach()[1]
    with pytest.raises(UnsupportedPlanError, match=r"one content under two names"):
        check_storage(model)


def test_parts_of_one_storage_and_shared_parameters_pass() -> None:
    model = Two()
    flat = torch.zeros(32)
    model.first.weight = nn.Parameter(flat[:16].view(4, 4))
    model.second.weight = nn.Parameter(flat[16:].view(4, 4))
    model.second.bias = model.first.bias
    model.register_buffer("tables", model.table.view(2, 2))
    check_storage(model)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last), "weight.*channels_last"),
        (nn.ParameterList([nn.Parameter(torch.zeros(0, 2))]), "has no elements"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(module: nn.Module, message: str) -> None:
    with pytest.raises(UnsupportedPlanError, match=message):
        check_storage(module)


def test_a_parameter_that_is_kept_beside_its_module_is_refused() -> None:
    """What takes its place on ranks would be trained, and the one that forward uses would not."""
    model = Two()
    model.second.used = {"tied": [model.first.weight]}
    with pytest.raises(UnsupportedPlanError, match=r"keeps first\.weight outside.*second\.used"):
        check_held_once(model)


def test_what_torch_keeps_of_its_own_passes() -> None:
    check_held_once(nn.LSTM(4, 4))
