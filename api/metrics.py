"""Metrics for Prometheus, one registry per application."""

from __future__ import annotations

from collections.abc import Callable, Collection

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Requests by route and status, the solves that run or wait, and what `collectors` add."""

    def __init__(
        self,
        *,
        running_count: Callable[[], float],
        waiting_count: Callable[[], float],
        collectors: Collection[Collector] = (),
    ) -> None:
        self._registry = CollectorRegistry()
        for collector in collectors:
            self._registry.register(collector)
        self._requests = Counter(
            "meshwright_requests",
            "Requests answered.",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "meshwright_request_seconds",
            "Seconds until a request was answered.",
            ("method", "route"),
            registry=self._registry,
        )
        ProcessCollector(registry=self._registry)
        running = Gauge("meshwright_solves_running", "Solves under way.", registry=self._registry)
        running.set_function(running_count)
        waiting = Gauge(
            "meshwright_solves_waiting", "Solves without a process.", registry=self._registry
        )
        waiting.set_function(waiting_count)

    def observe(self, *, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        known = method if method in _METHODS else "other"
        self._requests.labels(known, route, str(status)).inc()
        self._seconds.labels(known, route).observe(seconds)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
