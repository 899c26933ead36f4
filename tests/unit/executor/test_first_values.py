"""First values do not depend on which part of a parameter is asked for."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="no package torch")

import torch

from executor.models.decoder import initial_value
from executor.models.first_values import DrawnValues


def everything(shape: tuple[int, ...]) -> tuple[slice, ...]:
    """The ranges of all of a parameter."""
    return tuple(slice(0, size) for size in shape)


@pytest.mark.parametrize(
    ("shape", "part"),
    [
        ((600, 300), (slice(255, 513), slice(10, 290))),
        ((600, 300), (slice(599, 600), slice(0, 300))),
        ((70_000,), (slice(65_000, 66_000),)),
        ((3, 2, 200, 100), (slice(1, 3), slice(1, 2), slice(150, 200), slice(3, 5))),
        ((4, 5), (slice(1, 3), slice(2, 5))),
        ((600, 300), (slice(600, 600), slice(0, 300))),
    ],
)
def test_a_part_is_cut_out_of_the_whole(shape: tuple[int, ...], part: tuple[slice, ...]) -> None:
    values = DrawnValues(initial_value, seed=3)
    whole = values.piece("a.weight", torch.Size(shape), everything(shape))
    assert torch.equal(values.piece("a.weight", torch.Size(shape), part), whole[part])


def test_no_two_tiles_are_alike_and_all_are_spread_as_one_draw_is() -> None:
    shape = torch.Size((1024, 1024))
    whole = DrawnValues(initial_value, seed=3).piece("a.weight", shape, everything(shape))
    tiles = whole.view(4, 256, 4, 256).permute(0, 2, 1, 3).reshape(16, -1)
    others = torch.corrcoef(tiles) - torch.eye(16)
    assert others.abs().max() < 6 / 256  # six standard deviations of unrelated tiles
    assert float(whole.std()) == pytest.approx(0.02, rel=0.01)
    assert abs(float(whole.mean())) < 1e-4


def test_a_rank_draws_what_it_keeps_and_little_more() -> None:
    drawn: list[int] = []

    def counted(name: str, shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
        drawn.append(shape.numel())
        return initial_value(name, shape, generator)

    shape = torch.Size((2048, 4096))
    for part in ((slice(0, 256), slice(0, 4096)), (slice(0, 2048), slice(512, 1024))):
        drawn.clear()
        kept = DrawnValues(counted, seed=0).piece("a.weight", shape, part)
        assert sum(drawn) == kept.numel() == shape.numel() // 8
