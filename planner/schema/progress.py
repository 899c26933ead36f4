"""Progress: how far a search has come, for progress bars and event streams."""

from __future__ import annotations

from planner.schema.document import Part


class Progress(Part):
    """`open_count` configurations may still hold the best plan; the bounds close in on it."""

    phase: str
    configurations_total: int
    open_count: int
    milp_count: int
    best_seconds: float | None
    lower_bound_seconds: float | None
