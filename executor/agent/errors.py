"""Errors of the agent.

MeshwrightError
├── InputError
│   └── AgentError        configuration, enrolment or a lease that this node must not run
│       └── NotAllowedError   what its configuration does not allow, now and again
└── ServerError
    ├── AwayError         the server did not answer, or not now: ask again later
    ├── StaleError        the lease is another's by now: stop, and write nothing more
    └── RefusedError      the server says no, and will again
"""

from __future__ import annotations

from planner.errors import InputError, MeshwrightError


class AgentError(InputError):
    """Configuration, enrolment, or a lease that this node must not run."""


class NotAllowedError(AgentError):
    """A lease that this node's configuration does not allow: the same is refused again."""


class ServerError(MeshwrightError):
    """The server did not do what it was asked."""


class AwayError(ServerError):
    """The server did not answer, or not now. `retry_seconds` is its own wish, if it has one."""

    def __init__(self, message: str, *, retry_seconds: float | None = None) -> None:
        self.retry_seconds = retry_seconds
        super().__init__(message)


class StaleError(ServerError):
    """The lease is another's by now."""


class RefusedError(ServerError):
    """The server says no, and will say so again."""
