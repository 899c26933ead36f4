"""Machine figures: what was measured of a machine's ranks, all working at once.

`meshwright profile` has the executor measure them and fits a device profile to them. Seconds are
medians over repetitions of the slowest rank.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from planner.schema.document import Degree, Document, Part, PositiveBytes, PositiveCount
from planner.schema.job import Precision

MeasuredSeconds = Annotated[float, Field(gt=0, le=1e4)]
Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"]


class ProductFigure(Part):
    """A matrix product: `rows` x `inner_size` by `inner_size` x `outer_size`."""

    precision: Precision
    rows: PositiveCount
    inner_size: PositiveCount
    outer_size: PositiveCount
    seconds: MeasuredSeconds

    @property
    def flop_per_second(self) -> float:
        """Return its rate."""
        return 2.0 * self.rows * self.inner_size * self.outer_size / self.seconds


class AttentionFigure(Part):
    """Causal attention of `batch` sequences, forward, and backward without it."""

    precision: Precision
    batch: PositiveCount
    head_count: PositiveCount
    head_size: PositiveCount
    sequence_length: PositiveCount
    forward_seconds: MeasuredSeconds
    backward_seconds: MeasuredSeconds

    @property
    def forward_flop(self) -> float:
        """Return the FLOPs of the causal half, as the planner counts them."""
        pairs = self.sequence_length * (self.sequence_length + 1) / 2
        return 4.0 * self.batch * self.head_count * self.head_size * pairs


class CollectiveFigure(Part):
    """A collective over `rank_count` neighbours; `message_bytes` is the whole message."""

    kind: Collective
    rank_count: Degree
    message_bytes: PositiveBytes
    seconds: MeasuredSeconds


class MachineFigures(Document):
    """All that was measured. `conditions` says in words under which load, and with what.

    `lone_speed_ratio` is the speed of a rank with a core to itself over that while all are at work,
    `hidden_reduce_ratio` what an all_reduce adds to products beside it over what it takes while all
    wait, and `split_operator_seconds` what an operator on tensors that know how they are split
    takes beyond the same on plain ones. CPU ranks' collectives are those between products, which
    start and end as unevenly as in a step, and share `core_count` cores.
    """

    device_kind: Literal["cpu", "cuda"]
    device_name: str
    backend: str
    rank_count: Degree
    core_count: PositiveCount
    device_memory_bytes: PositiveBytes
    host_memory_bytes: PositiveBytes
    products: tuple[ProductFigure, ...]
    attentions: tuple[AttentionFigure, ...]
    memory_bytes_per_second: PositiveBytes
    kernel_seconds: MeasuredSeconds
    host_seconds_per_kernel: MeasuredSeconds
    optimizer_bytes_per_second: PositiveBytes
    to_device_bytes_per_second: PositiveBytes
    from_device_bytes_per_second: PositiveBytes
    runtime_bytes: PositiveBytes
    collectives: tuple[CollectiveFigure, ...]
    lone_speed_ratio: Annotated[float, Field(ge=1, le=1024)] = 1.0
    hidden_reduce_ratio: Annotated[float, Field(ge=0, le=1)] = 1.0
    split_operator_seconds: Annotated[float, Field(ge=0, le=1)] = 0.0
    conditions: str
