"""Loop: an agent's life: report what the node has, take up what was left, run lease after lease."""

from __future__ import annotations

import fcntl
import shutil
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import IO

from pydantic import ValidationError

from executor.agent.backoff import Backoff
from executor.agent.client import Client
from executor.agent.configuration import AgentConfiguration
from executor.agent.devices import introduction
from executor.agent.enrolment import Credentials
from executor.agent.errors import AgentError, AwayError, RefusedError, StaleError
from executor.agent.execution import Execution, Surroundings
from executor.agent.launching import Launching, LocalLaunching, folder_of, tag_of
from executor.agent.processes import kill_others
from executor.agent.run_folder import RunFolder
from executor.agent.slurm import SlurmLaunching
from executor.agent.status import StatusLine
from executor.replaced_file import replace_file
from planner.schema.lease import Lease

_POLL_SECONDS = 30.0
_KEPT_FOLDERS = 20


class Agent:
    """One node's agent."""

    def __init__(
        self, configuration: AgentConfiguration, credentials: Credentials, status: StatusLine
    ) -> None:
        self._configuration = configuration
        self._credentials = credentials
        self._status = status
        self._shutdown = threading.Event()
        self._client = Client(
            configuration.server, agent_id=credentials.agent_id, token=credentials.token
        )
        self._poll_seconds = _POLL_SECONDS
        self._is_interruptible = False

    def run(self) -> None:
        """Work until a signal asks to stop.

        Raises:
            AgentError: if another agent works here, or the server does not know this one.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask_stop)
        (self._configuration.folder / "runs").mkdir(parents=True, exist_ok=True)
        with self._only_agent():
            self._status.say(f"agent {self._credentials.agent_id} at {self._configuration.server}")
            try:
                self._take_up()
                self._introduce()
                while not self._shutdown.is_set():
                    self._next()
            except RefusedError as error:
                raise AgentError(
                    f"the server refuses this agent: {error}",
                    field="server",
                    value=self._configuration.server,
                    remedy="was it removed there? enrol it anew",
                ) from None
            finally:
                self._client.close()
        self._status.say("stopped")

    def _take_up(self) -> None:
        """Go on with what an agent before this one left; end what nobody can go on with."""
        left: list[tuple[Lease, RunFolder]] = []
        for path in sorted((self._configuration.folder / "runs").iterdir()):
            folder = RunFolder(path)
            if folder.is_closed():
                continue
            try:
                left.append((_read_lease(folder), folder))
            except (OSError, ValidationError):
                folder.close("it was never whole")
        kept = tuple(tag_of(self._credentials.agent_id, lease) for lease, _ in left)
        if self._configuration.slurm is None:
            kill_others(f"{self._credentials.agent_id}/", kept=kept)
        for lease, folder in left:
            self._status.say(f"takes up run {lease.run_id} (epoch {lease.epoch})")
            self._execute(lease, folder)
        self._forget_old()

    def _introduce(self) -> None:
        """Tell the server what this node has now."""
        backoff = Backoff()
        report, words = introduction(self._configuration)
        self._status.say(words)
        while not self._shutdown.is_set():
            try:
                self._client.report(report)
            except AwayError as error:
                self._away(backoff, error)
            except StaleError as error:
                raise RefusedError(str(error)) from None
            else:
                return

    def _next(self) -> None:
        """Take one lease and work on it, or find that there is none."""
        backoff = Backoff()
        self._status.waiting(self._configuration.server, is_away=False)
        while not self._shutdown.is_set():
            try:
                lease = self._poll()
            except _StoppingError:
                return
            except AwayError as error:
                self._away(backoff, error)
            except StaleError as error:
                raise RefusedError(str(error)) from None
            else:
                if lease is not None:
                    self._accept(lease)
                return

    def _poll(self) -> Lease | None:
        """Ask for a lease; a signal ends the waiting.

        Raises:
            _StoppingError: if a signal came.
        """
        self._is_interruptible = True
        try:
            if self._shutdown.is_set():
                raise _StoppingError
            return self._client.lease(self._poll_seconds)
        finally:
            self._is_interruptible = False

    def _accept(self, lease: Lease) -> None:
        self._poll_seconds = lease.intervals.poll_seconds
        folder = folder_of(self._configuration.folder, lease)
        if folder.is_closed():
            # The server gives again what this node is done with: nothing of it runs here.
            self._status.say(f"lease {lease.id} is over here")
            self._shutdown.wait(lease.intervals.heartbeat_seconds)
            return
        folder.path.mkdir(parents=True, exist_ok=True)
        replace_file(folder.path / "lease.json", lease.model_dump_json())
        where = f"node {lease.node_rank + 1} of {lease.node_count}"
        self._status.say(f"leased run {lease.run_id} (epoch {lease.epoch}), {where}")
        self._execute(lease, folder)
        self._forget_old()

    def _execute(self, lease: Lease, folder: RunFolder) -> None:
        around = Surroundings(
            client=self._client,
            configuration=self._configuration,
            shutdown=self._shutdown,
            say=self._status.say,
            show=self._status.running,
        )
        Execution(lease, folder, self._launching(lease, folder), around).run()

    def _launching(self, lease: Lease, folder: RunFolder) -> Launching:
        tag = tag_of(self._credentials.agent_id, lease)
        if self._configuration.slurm is not None:
            return SlurmLaunching(folder, lease, self._configuration.slurm, tag=tag)
        return LocalLaunching(folder, tag=tag)

    def _away(self, backoff: Backoff, error: AwayError) -> None:
        self._status.waiting(self._configuration.server, is_away=True)
        self._shutdown.wait(backoff.pause_seconds(error.retry_seconds))

    def _forget_old(self) -> None:
        """Remove the folders of leases that are over, but the newest."""
        over = [
            path
            for path in (self._configuration.folder / "runs").iterdir()
            if RunFolder(path).is_closed()
        ]
        over.sort(key=lambda path: (path / "closed").stat().st_mtime)
        for path in over[:-_KEPT_FOLDERS]:
            shutil.rmtree(path, ignore_errors=True)

    def _only_agent(self) -> IO[bytes]:
        """Return the lock of the work folder.

        Raises:
            AgentError: if another agent has it.
        """
        path = self._configuration.folder / "agent.lock"
        file = path.open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise AgentError(
                "another agent works in this folder",
                field="work_folder",
                value=str(path.parent),
                remedy="stop that one, or give this one a folder of its own",
            ) from None
        return file

    def _ask_stop(self, _number: int, _frame: FrameType | None) -> None:
        self._shutdown.set()
        if self._is_interruptible:
            self._is_interruptible = False
            raise _StoppingError


class _StoppingError(BaseException):
    """A signal came while the agent was waiting for a lease."""


def _read_lease(folder: RunFolder) -> Lease:
    return Lease.model_validate_json((folder.path / "lease.json").read_bytes())


def default_configuration_path() -> Path:
    """Return where the configuration is looked for."""
    return Path("~/.meshwright/agent.toml").expanduser()
