"""Metrics of agents, leases and runs: counted in the database when somebody looks.

Every process of a service says the same of them, so take one, not their sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import structlog
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.db import UNAVAILABLE, Database, reason_of
from api.repositories.clock import current_time
from api.repositories.fleet import FleetRepository, FleetState

log = structlog.get_logger(__name__)


class FleetCollector(Collector):
    """Counts agents, live leases and runs by state, and how long the first in the queue waits."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the names are known without asking the database."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Return the figures; none while the database is away, as other metrics still hold."""
        try:
            with self._database.reading() as session:
                state = FleetRepository(session).state(at=current_time(session))
        except UNAVAILABLE as error:
            log.warning("no metrics of agents and runs", reason=reason_of(error))
            return []
        return list(_families(state))


def _families(state: FleetState) -> Iterator[Metric]:
    for name, text, counts in (
        ("meshwright_agents", "Agents by state.", state.agents),
        ("meshwright_leases", "Live leases by state.", state.leases),
        ("meshwright_runs", "Runs by state, those that have ended too.", state.runs),
    ):
        family = GaugeMetricFamily(name, text, labels=["state"])
        for label, count in sorted(counts.items()):
            family.add_metric([label], count)
        yield family
    yield GaugeMetricFamily(
        "meshwright_run_longest_wait_seconds",
        "Seconds that the run first in the queue has waited.",
        value=state.longest_wait_seconds,
    )
    yield GaugeMetricFamily(
        "meshwright_lease_longest_silence_seconds",
        "Seconds since an agent with a live lease was last heard of, the longest.",
        value=state.longest_silence_seconds,
    )
