"""Ranks that end after the same step end together; who ends before the others is told so."""

from __future__ import annotations

import pytest
from torch.distributed import HashStore

from executor.ending import Ending
from executor.errors import ModelMismatchError


def endings(world_size: int, *steps: int) -> list[Ending]:
    """Ranks that have begun so many steps, of a world of `world_size`."""
    store = HashStore()
    found = [Ending(store, rank=rank, world_size=world_size) for rank in range(len(steps))]
    for ending, count in zip(found, steps, strict=True):
        for _ in range(count):
            ending.step_begins()
    return found


def test_a_lone_rank_waits_for_nobody() -> None:
    (alone,) = endings(1, 3)
    alone.wait(0.0)


def test_a_rank_goes_on_once_all_have_ended_after_its_step() -> None:
    first, second = endings(2, 3, 3)
    with pytest.raises(ModelMismatchError, match="others have not for 0 s"):
        first.wait(0.0)
    second.wait(0.0)
    first.wait(0.0)


@pytest.mark.parametrize(("steps", "early"), [((1, 2), 0), ((2, 1), 1), ((2, 2, 1), 2)])
def test_who_ends_while_others_have_begun_another_step_is_told(
    steps: tuple[int, ...], early: int
) -> None:
    found = endings(len(steps), *steps)
    with pytest.raises(
        ModelMismatchError, match=f"has ended on rank {early} after 1 steps"
    ) as caught:
        found[early].wait(600.0)
    assert "other ranks have begun another step" in str(caught.value)
    assert "take as many steps on every rank" in str(caught.value)


def test_ranks_that_have_all_ended_after_different_steps_are_told() -> None:
    first, second, third = endings(3, 2, 2, 1)
    for ending in (first, second):
        with pytest.raises(ModelMismatchError, match="others have not"):
            ending.wait(0.0)
    with pytest.raises(ModelMismatchError, match="after 1 steps, and others after more or fewer"):
        third.wait(0.0)


def test_what_a_rank_does_after_the_script_is_no_step_of_it() -> None:
    """The first has ended and meters a step, while the second still looks for the third."""
    first, second, _ = endings(3, 2, 2, 1)
    with pytest.raises(ModelMismatchError, match="others have not"):
        first.wait(0.0)
    first.step_begins()
    with pytest.raises(ModelMismatchError, match="others have not"):
        second.wait(0.0)
