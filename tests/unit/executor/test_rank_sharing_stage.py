"""What a stage has in flight at most, read off the orders of torch's schedules."""

from __future__ import annotations

from torch.distributed.pipelining.schedules import _Action

from executor.apply.rank_sharing_stage import most_in_flight


def order(text: str) -> list[_Action]:
    """The actions that `text` names in torch's own short form."""
    return [_Action.from_str(name) for name in text.split()]


def test_forwards_without_backwards_pile_up() -> None:
    assert most_in_flight(order("1F0 1F1 1F2 1B0 1B1 1B2"), 1) == 3


def test_other_stages_of_the_rank_do_not_count() -> None:
    assert most_in_flight(order("0F0 3F0 0F1 3F1 3I0 3W0 0I0 0W0"), 3) == 2


def test_the_first_part_of_a_backward_takes_a_micro_batch_back() -> None:
    """Its gradient has come; what is left needs nothing of other ranks."""
    assert most_in_flight(order("2F0 2I0 2F1 2I1 2W0 2W1"), 2) == 1


def test_of_an_overlapped_pair_the_forward_counts_first() -> None:
    pair = _Action(-1, _Action.from_str("0F0").computation_type, None, tuple(order("0F1 0B0")))
    assert most_in_flight([*order("0F0"), pair], 0) == 2


def test_gaps_in_an_order_count_nothing() -> None:
    assert most_in_flight([None, *order("0F0 0B0"), None], 0) == 1
