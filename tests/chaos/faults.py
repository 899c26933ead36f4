"""Faults: what befalls a fleet while a run goes on. Each ends with everything back in service."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from executor.agent.run_folder import RunFolder
from planner.schema.lifecycle import FINAL_LEASE_STATES
from tests.chaos.fleet import FINAL, Fleet, Node
from tests.chaos.server import wait_until

# As shares of a lease: shorter and longer than what agents and server may be silent for.
_SHORT = (0.02, 0.4)
_ANY = (0.02, 1.6)
_LONG = (1.3, 2.0)
# How long a run may wait for a node that is gone before others have it, in leases: some would do,
# but the machine may be busy.
_TAKEN_OVER_LEASES = 20
DAY_SECONDS = 86_400.0


class Faults:
    """Does one of the faults to a fleet, drawn from `chance`."""

    def __init__(self, fleet: Fleet, chance: random.Random, *, lease_seconds: float) -> None:
        self._fleet = fleet
        self._chance = chance
        self._lease_seconds = lease_seconds
        self.kinds: dict[str, Callable[[str, Path], None]] = {
            "nothing": _nothing,
            "rank killed": self._kill_rank,
            "rank stopped": self._stop_rank,
            "keeper killed": self._kill_keeper,
            "keeper stopped": self._stop_keeper,
            "agent killed": self._kill_agent,
            "agent stopped": self._stop_agent,
            "agent terminated": self._terminate_agent,
            "node lost power": self._lose_node,
            "server killed": self._kill_server,
            "server stopped": self._stop_server,
            "network cut": self._cut_network,
            "network cut for long": self._cut_network_for_long,
            "requests lost, doubled, disordered": self._spoil,
            "cancelled": self._cancel,
            "database away": self._lose_database,
        }
        if fleet.clock.can_be_set:
            self.kinds["server's clock set"] = self._set_clock
            self.kinds["agent's clock set"] = self._set_agents_clock
            self.kinds["network cut, server's clock set"] = self._cut_and_set_clock
            self.kinds["network cut, agent's clock set"] = self._cut_and_set_agents_clock
            self.kinds["node lost, server's clock set back"] = self._lose_node_and_time

    @property
    def outlast_runs(self) -> frozenset[str]:
        """Return the kinds that show something only while their run goes on."""
        return frozenset(kind for kind in self.kinds if "clock" in kind or "for long" in kind)

    def _node(self) -> Node:
        """Return a node that works if there is one."""
        working = [node for node in self._fleet.nodes if node.is_at_work]
        return self._chance.choice(working or self._fleet.nodes)

    def _holder(self, run: str) -> Node:
        """Return a node that has a part of the run, as the server knows; any if none has one.

        A node that was cut off works on what others have by now until it hears of that.
        """
        leases = self._fleet.state(run)["leases"]
        live = {item["agent_id"] for item in leases if item["state"] not in FINAL_LEASE_STATES}
        holding = [node for node in self._fleet.nodes if node.agent_id in live]
        return self._chance.choice(holding) if holding else self._node()

    def _pause(self, shares: tuple[float, float]) -> None:
        time.sleep(self._chance.uniform(*shares) * self._lease_seconds)

    def _rank_pid(self, marks: Path) -> int | None:
        """Return a rank that was alive when it last wrote."""
        found = sorted(marks.glob("*-*.txt"), key=lambda path: path.stat().st_mtime)
        return int(found[-1].read_text().split()[1]) if found else None

    def _keeper_pid(self) -> int | None:
        for path in self._node().folder.glob("runs/*"):
            if not (path / "closed").exists() and (path / "keeper.json").exists():
                mark = RunFolder(path).read_keeper()
                return None if mark is None else mark.pid
        return None

    def _kill_rank(self, _run: str, marks: Path) -> None:
        _send(self._rank_pid(marks), signal.SIGKILL)

    def _stop_rank(self, _run: str, marks: Path) -> None:
        self._stop(self._rank_pid(marks), _ANY)

    def _kill_keeper(self, _run: str, _marks: Path) -> None:
        _send(self._keeper_pid(), signal.SIGKILL)

    def _stop_keeper(self, _run: str, _marks: Path) -> None:
        self._stop(self._keeper_pid(), _ANY)

    def _stop(self, pid: int | None, shares: tuple[float, float]) -> None:
        _send(pid, signal.SIGSTOP)
        self._pause(shares)
        _send(pid, signal.SIGCONT)

    def _kill_agent(self, _run: str, _marks: Path) -> None:
        node = self._node()
        node.kill()
        self._pause(_ANY)
        node.start()

    def _stop_agent(self, _run: str, _marks: Path) -> None:
        node = self._node()
        node.send(signal.SIGSTOP)
        self._pause(_ANY)
        node.send(signal.SIGCONT)

    def _terminate_agent(self, _run: str, _marks: Path) -> None:
        node = self._node()
        node.stop()
        self._pause(_SHORT)
        node.start()

    def _lose_node(self, _run: str, _marks: Path) -> None:
        node = self._node()
        node.die()
        self._pause(_ANY)
        node.start()

    def _kill_server(self, _run: str, _marks: Path) -> None:
        self._fleet.server.kill()
        self._pause(_SHORT)
        self._fleet.server.start()

    def _stop_server(self, _run: str, _marks: Path) -> None:
        pid = self._fleet.server.pid
        self._stop(pid, _ANY)

    def _cut_network(self, _run: str, _marks: Path) -> None:
        with self._node().proxy.cut():
            self._pause(_ANY)

    def _cut_network_for_long(self, _run: str, _marks: Path) -> None:
        with self._node().proxy.cut():
            self._pause(_LONG)

    def _spoil(self, _run: str, _marks: Path) -> None:
        with ExitStack() as stack:
            for node in self._fleet.nodes:
                stack.enter_context(node.proxy.spoiled(0.4))
            self._pause((0.3, 1.0))

    def _lose_database(self, run: str, _marks: Path) -> None:
        """Have the database away; what is asked for meanwhile is refused, and leaves nothing."""
        plan_id = self._fleet.state(run)["plan_id"]
        with self._fleet.database.away(self._chance) as answers:
            if answers:
                body = {"plan_id": plan_id, "command": "work"}
                status = self._fleet.server.status_of("POST", "/v1/runs", body)
                if status not in {None, 503}:
                    self._fleet.surprises.append(f"without a database a run was answered {status}")
            self._pause(_ANY)

    def _set_clock(self, _run: str, _marks: Path) -> None:
        """Set the clock of the server and its database by up to many leases, either way."""
        leases = self._chance.choice([-1, 1]) * 10 ** self._chance.uniform(-0.5, 3)
        self._fleet.clock.set_by(leases * self._lease_seconds)

    def _set_agents_clock(self, _run: str, _marks: Path) -> None:
        self._node().clock.set_by(self._chance.uniform(-DAY_SECONDS, DAY_SECONDS))

    def _cut_and_set_clock(self, _run: str, _marks: Path) -> None:
        """Cut off a node whose ranks live on, and set the server's clock ahead by many leases."""
        with self._node().proxy.cut():
            self._fleet.clock.set_by(self._chance.uniform(2, 1000) * self._lease_seconds)
            self._pause(_LONG)

    def _cut_and_set_agents_clock(self, _run: str, _marks: Path) -> None:
        """Cut off a node whose ranks live on, and set its clock back."""
        node = self._node()
        with node.proxy.cut():
            node.clock.set_by(-self._chance.uniform(0.1, 1) * DAY_SECONDS)
            self._pause(_LONG)

    def _lose_node_and_time(self, run: str, _marks: Path) -> None:
        """Lose a node while the server's clock is set back: others must have the run all the same.

        The node is started when they have it.
        """
        before = self._fleet.state(run)["epoch"]
        node = self._holder(run)
        node.die()
        self._fleet.clock.set_by(-self._chance.uniform(100, 1000) * self._lease_seconds)

        def went_on() -> bool:
            found = self._fleet.state(run)
            return found["epoch"] > before or found["state"] in FINAL

        try:
            seconds = _TAKEN_OVER_LEASES * self._lease_seconds
            wait_until(went_on, seconds, f"{node.name} was lost, and its lease does not expire")
        except AssertionError as error:
            self._fleet.surprises.append(str(error))
        finally:
            node.start()

    def _cancel(self, run: str, _marks: Path) -> None:
        self._fleet.server.ask("POST", f"/v1/runs/{run}/cancel", allowed={409})


def _nothing(_run: str, _marks: Path) -> None:
    """Let the run alone."""


def _send(pid: int | None, number: signal.Signals) -> None:
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
