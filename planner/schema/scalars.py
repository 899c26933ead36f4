"""Scalars: how a device under a stack differs from its profile, as its own steps say."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from planner.schema.document import Part

Factor = Annotated[float, Field(ge=0.05, le=20)]


class Scalars(Part):
    """Factors on what profiles say; 1 is the shipped value.

    `compute_efficiency_ratio` is of all matrix products and attention inside a step;
    `fp8_efficiency_ratio` of products in 8 bits and `attention_efficiency_ratio` of fused attention
    beside it; `memory_efficiency_ratio` of achieved memory bandwidth,
    `communication_efficiency_ratio` of the bandwidth of every network level, and
    `host_overhead_ratio` of the host's time to launch a kernel.
    """

    compute_efficiency_ratio: Factor = 1.0
    memory_efficiency_ratio: Factor = 1.0
    communication_efficiency_ratio: Factor = 1.0
    host_overhead_ratio: Factor = 1.0
    fp8_efficiency_ratio: Factor = 1.0
    attention_efficiency_ratio: Factor = 1.0
