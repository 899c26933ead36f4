"""Rank-sharing stage: one of several stages of a rank, which gives up what it has sent.

torch's runtime for several stages on a rank holds every tensor that it sends until the step's end:
two for each micro-batch and stage. A send is over at the latest when its receiver must have used
what it got, which its own messages tell:

- the output of micro-batch i, when its gradient has come back;
- the gradient of micro-batch i, when the stage before sends the output of micro-batch i + K, where
  K is the most micro-batches that it has in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import distributed

from executor.apply.pipeline_stage import SyncedStage

_FORWARD = "F"
_BACKWARDS = frozenset({"I", "B"})


class RankSharingStage(SyncedStage):
    """A stage that waits for its sends as soon as they are over."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._outputs_sent: dict[int, list[distributed.Work]] = {}
        self._gradients_sent: dict[int, list[distributed.Work]] = {}
        self._in_flight_before = 0

    def expect(self, orders: Mapping[int, Iterable[Any]]) -> None:
        """Learn from the orders of all ranks what the stage before has in flight at most."""
        actions = [action for order in orders.values() for action in order]
        self._in_flight_before = most_in_flight(actions, self.stage_index - 1)

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[distributed.P2POp]:
        """Send a micro-batch's output; return nothing for torch's runtime to send."""
        self._outputs_sent[fwd_chunk_id] = _sent(super().get_fwd_send_ops(fwd_chunk_id))
        return []

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[distributed.P2POp]:
        """Send a micro-batch's gradient; return nothing for torch's runtime to send."""
        self._gradients_sent[bwd_chunk_id] = _sent(super().get_bwd_send_ops(bwd_chunk_id))
        return []

    def forward_one_chunk(self, fwd_chunk_id: int, *arguments: Any, **named: Any) -> Any:
        """Return the output of a micro-batch whose input has come."""
        _settle(self._gradients_sent, up_to=fwd_chunk_id - self._in_flight_before)
        return super().forward_one_chunk(fwd_chunk_id, *arguments, **named)

    def backward_one_chunk(self, bwd_chunk_id: int, *arguments: Any, **named: Any) -> None:
        """Run the backward of a micro-batch whose gradient has come."""
        _settle(self._outputs_sent, up_to=bwd_chunk_id)
        super().backward_one_chunk(bwd_chunk_id, *arguments, **named)

    def finish(self) -> None:
        """Wait for gradient reductions and sends that are still under way."""
        for sent in (self._outputs_sent, self._gradients_sent):
            _settle(sent, up_to=max(sent, default=0))
        super().finish()


def most_in_flight(actions: Iterable[Any], stage: int) -> int:
    """Return how many micro-batches `stage` has begun and not taken back at most.

    `actions` are those of torch's schedules, in the order of each rank; a pair that overlaps counts
    as its two halves, one after the other.
    """
    current = most = 0
    for action in actions:
        for single in () if action is None else action.sub_actions or (action,):
            if single.stage_index == stage:
                kind = single.computation_type.value
                current += (kind == _FORWARD) - (kind in _BACKWARDS)
                most = max(most, current)
    return most


def _sent(operations: Iterable[distributed.P2POp]) -> list[distributed.Work]:
    works = [
        distributed.isend(each.tensor, group=each.group, group_dst=each.group_peer)
        for each in operations
    ]
    return [work for work in works if work is not None]


def _settle(sent: dict[int, list[distributed.Work]], *, up_to: int) -> None:
    """Wait for the sends of micro-batches up to one, all of which are over, and forget them."""
    for micro_batch in [index for index in sent if index <= up_to]:
        for work in sent.pop(micro_batch):
            work.wait()
