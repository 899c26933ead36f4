"""Execution: one lease, from its acceptance to its result.

A lease that is lost ends with its processes killed and nothing written. One that this agent's
predecessor held is taken up where its folder says it is.
"""

from __future__ import annotations

import json
import random
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from executor.agent.backoff import Backoff
from executor.agent.client import Client
from executor.agent.commands import Place, command_of
from executor.agent.configuration import AgentConfiguration
from executor.agent.errors import AgentError, AwayError, NotAllowedError, RefusedError, StaleError
from executor.agent.heartbeat import Heartbeat
from executor.agent.held_lease import HeldLease
from executor.agent.launching import Launching
from executor.agent.results import (
    killed_rank,
    read_result,
    result_of,
    stopped_result,
    write_result,
)
from executor.agent.run_folder import Command, Ending, RunFolder, machine_seconds
from executor.agent.slurm import FIRST_HOST
from executor.agent.slurm_rows import node_metrics_name
from executor.agent.uploads import Uploads
from planner.schema.lease import Lease, LeaseResult
from planner.schema.lifecycle import LeaseState

_LOOK_SECONDS = 0.1
# How long an agent that is being shut down tries to tell the server; the next one goes on trying.
_FAREWELL_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What an execution needs of the agent around it. `shutdown` asks it to stop its run."""

    client: Client
    configuration: AgentConfiguration
    shutdown: threading.Event
    say: Callable[[str], None]
    show: Callable[[HeldLease], None]


class Execution:
    """One lease on this node."""

    def __init__(
        self, lease: Lease, folder: RunFolder, launching: Launching, around: Surroundings
    ) -> None:
        self._lease = lease
        self._folder = folder
        self._launching = launching
        self._around = around
        self._held = HeldLease(lease, folder)
        self._checkpoint = _checkpoint_path(around.configuration, lease)
        self._checkpoint_seen: tuple[float, int | None] = (0.0, None)

    def run(self) -> None:
        """Work on the lease until it is over; the folder is closed unless the server is away."""
        folder = self._folder
        if not self._launching.was_started():
            # Of what runs already, a heartbeat's answer alone may extend the time.
            folder.write_until(machine_seconds() + self._lease.intervals.give_up_seconds)
        heartbeat = Heartbeat(self._around.client, self._held, self._look_at_checkpoint)
        uploads = Uploads(self._around.client, self._held)
        heartbeat.start()
        uploads.start()
        try:
            result = read_result(folder) or self._worked()
            if result is not None:
                write_result(folder, result)
                self._finish(result, uploads)
            if self._held.is_lost:
                self._launching.kill()
                folder.close(f"lost: {self._held.lost_reason}")
                self._around.say(f"lease lost: {self._held.lost_reason}")
        finally:
            self._held.over.set()
            self._held.changed.set()
            uploads.end()
            heartbeat.join()
            uploads.join()

    def _worked(self) -> LeaseResult | None:
        """Return how this node's part ended, `None` if the lease was lost."""
        if not self._launching.was_started():
            try:
                prepared = self._prepared()
                if not isinstance(prepared, list):
                    return prepared
                self._launching.start(prepared)
            except AgentError as error:
                return _failed(self._lease, error)
            self._around.say(f"started {self._lease.command} (attempt {self._lease.attempt})")
        self._held.enter(LeaseState.RUNNING)
        return self._watched()

    def _prepared(self) -> list[Command] | LeaseResult | None:
        """Return the commands once all agents are ready; a result or nothing if it ends before.

        Raises:
            AgentError: if this node must not or cannot run the lease.
        """
        place = self._place()
        self._commands(place)
        self._checkpoint.mkdir(parents=True, exist_ok=True)
        self._folder.plan_path.write_text(self._lease.plan.to_json(), encoding="utf-8")
        if place.node_rank == 0:
            self._held.master_port = place.master_port
        self._held.enter(LeaseState.READY)
        while not self._held.is_lost:
            answer = self._held.answer
            if answer is not None and answer.stop:
                return stopped_result(self._lease, answer.stop_reason, self._checkpoint_step())
            if self._around.shutdown.is_set():
                return stopped_result(self._lease, _GOING, self._checkpoint_step())
            if self._folder.seconds_left() <= 0:
                return stopped_result(self._lease, _UNHEARD, self._checkpoint_step())
            if answer is not None and answer.go:
                return self._commands(self._place(answer.master_address, answer.master_port))
            self._wait()
        return None

    def _watched(self) -> LeaseResult | None:
        """Return how the processes ended, by themselves or because somebody wanted it."""
        while not self._held.is_lost:
            ending = self._launching.ending()
            if ending is not None:
                return self._result(ending)
            why = self._why_stop()
            if why is not None:
                if (own := killed_rank(self._folder)) is not None:
                    why = f"{own}; {why}"
                self._around.say(f"stopping: {why}")
                self._launching.stop()
                return self._result(self._launching.ending() or _STOPPED, why)
            if self._folder.seconds_left() <= 0:
                self._launching.kill()
            self._wait()
        return None

    def _why_stop(self) -> str | None:
        answer = self._held.answer
        if answer is not None and answer.stop:
            return answer.stop_reason or "the server says so"
        return _GOING if self._around.shutdown.is_set() else None

    def _result(self, ending: Ending, why: str | None = None) -> LeaseResult:
        if ending.reason == "lease_lost":
            why = _UNHEARD
        step = self._checkpoint_step()
        return result_of(self._lease, self._folder, ending, why=why, checkpoint_step=step)

    def _finish(self, result: LeaseResult, uploads: Uploads) -> None:
        """Send what is left and then the result, as long as the lease is this node's."""
        uploads.end()
        began = machine_seconds()
        backoff = Backoff()
        while not self._held.is_lost:
            leaving = machine_seconds() - began > _FAREWELL_SECONDS
            if self._around.shutdown.is_set() and leaving:
                self._around.say("the server is away: the result is kept for the next start")
                return
            if not uploads.all_sent.wait(_LOOK_SECONDS):
                self._around.show(self._held)
                continue
            self._held.is_result_sent = True
            try:
                answer = self._around.client.result(self._lease.id, result)
            except AwayError as error:
                self._held.over.wait(backoff.pause_seconds(error.retry_seconds))
            except (StaleError, RefusedError) as error:
                self._held.lose(str(error))
            else:
                self._folder.close(f"acknowledged: {answer.state}")
                if uploads.refusal is not None:
                    self._around.say(f"log or metrics were refused: {uploads.refusal}")
                reason = f": {result.reason}" if result.reason else ""
                self._around.say(f"{result.outcome}{reason}")
                return

    def _place(self, address: str | None = None, port: int | None = None) -> Place:
        """Return where this node is in the run.

        Raises:
            AgentError: if its ranks are not a row, which is how launchers number them.
        """
        lease = self._lease
        if not lease.ranks or lease.ranks != tuple(range(lease.ranks[0], lease.ranks[-1] + 1)):
            raise AgentError(
                "must be numbers in a row",
                field="lease.ranks",
                value=str(lease.ranks),
                remedy="place the plan so that each node's ranks follow one another",
            )
        own = lease.node_rank == 0 and port is None
        return Place(
            node_rank=lease.node_rank,
            node_count=lease.node_count,
            local_ranks=len(lease.ranks),
            master_address=address or lease.master_address,
            master_port=free_port(self._around.configuration.ports)
            if own
            else port or lease.master_port,
        )

    def _commands(self, place: Place) -> list[Command]:
        """Return a command for each node that this agent starts."""
        template = self._around.configuration.commands.get(self._lease.command)
        if template is None:
            allowed = ", ".join(sorted(self._around.configuration.commands))
            raise NotAllowedError(
                "is not allowed by this node's configuration",
                field="command",
                value=self._lease.command,
                remedy=f"allowed there: {allowed}",
            )
        places = [place]
        if self._around.configuration.slurm is not None:
            places = job_places(self._lease, place)
        return [
            command_of(
                self._lease, template, each, folder=self._folder, checkpoint=self._checkpoint
            )
            for each in places
        ]

    def _wait(self) -> None:
        self._around.show(self._held)
        self._held.news.wait(_LOOK_SECONDS)
        self._held.news.clear()

    def _look_at_checkpoint(self) -> None:
        self._held.checkpoint_step = self._checkpoint_step()

    def _checkpoint_step(self) -> int | None:
        """Return the step of the newest whole checkpoint, `None` if there is none."""
        path = self._checkpoint / "checkpoint.json"
        try:
            changed = path.stat().st_mtime
            if changed != self._checkpoint_seen[0]:
                step = json.loads(path.read_text(encoding="utf-8")).get("step")
                self._checkpoint_seen = (changed, step if isinstance(step, int) else None)
        except (OSError, ValueError, AttributeError):
            return None
        return self._checkpoint_seen[1]


_GOING = "the agent is being shut down"
_UNHEARD = "the server was not heard of for so long that the lease may be another's"
_STOPPED = Ending(reason="stopped", exit_status=None)


def job_places(lease: Lease, place: Place) -> list[Place]:
    """Return the places of a Slurm job's nodes; which host is the first is known when it runs.

    Raises:
        AgentError: if other agents take part, or the nodes would start different numbers of ranks.
    """
    if lease.node_span != lease.node_count:
        raise AgentError(
            "a job of a scheduler cannot meet the nodes of other agents",
            field="node_span",
            value=f"{lease.node_span} of {lease.node_count} nodes",
            remedy="place the whole run on one Slurm agent, or on none",
        )
    if len(lease.ranks) % lease.node_span:
        raise AgentError(
            "must be a multiple of the job's nodes",
            field="lease.ranks",
            value=len(lease.ranks),
            remedy="plan for nodes that are alike",
        )
    return [
        replace(
            place,
            node_rank=node,
            local_ranks=len(lease.ranks) // lease.node_span,
            master_address=FIRST_HOST,
            metrics_name=node_metrics_name(node),
        )
        for node in range(lease.node_span)
    ]


def _failed(lease: Lease, error: AgentError) -> LeaseResult:
    return LeaseResult(
        epoch=lease.epoch,
        outcome=LeaseState.FAILED,
        reason=str(error)[:2000],
        refused=isinstance(error, NotAllowedError),
    )


def _checkpoint_path(configuration: AgentConfiguration, lease: Lease) -> Path:
    """Return a folder right under the node's own for checkpoints, whatever the lease calls it."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", lease.checkpoint_folder).lstrip(".") or "unnamed"
    return configuration.checkpoints / name


def free_port(ports: tuple[int, int]) -> int:
    """Return a port of the range that nobody listens on now.

    Raises:
        AgentError: if all are taken.
    """
    first, last = min(ports), max(ports)
    for port in random.sample(range(first, last + 1), last - first + 1):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise AgentError(
        "all are in use", field="ports", value=f"{first}-{last}", remedy="give a wider range"
    )
