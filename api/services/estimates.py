"""Estimates: the price of a strategy, computed at once and never stored."""

from __future__ import annotations

from api.schemas import EstimateRequest
from api.services.planner import Planner
from api.services.requests import resolved_request
from planner.schema.plan import Estimate


class EstimateService:
    """Prices strategies."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner

    def estimate(self, request: EstimateRequest) -> Estimate:
        """Return what the request's strategy costs.

        Raises:
            InputError: if the request is bad or the strategy illegal.
        """
        resolved = resolved_request(self._planner, request)
        return self._planner.estimate(
            resolved.model, resolved.cluster, resolved.job, request.strategy
        )
