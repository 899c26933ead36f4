"""Enrolment: a one-time token becomes this agent's own, in a file that only it can read."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import ValidationError

from executor.agent.client import Client
from executor.agent.configuration import AgentConfiguration
from executor.agent.devices import node_report
from executor.agent.errors import AgentError, AwayError, RefusedError, ServerError
from planner.schema.agent import EnrolmentRequest
from planner.schema.document import document_error

_TOKEN_MODE = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Who this agent is to its server."""

    agent_id: str
    token: str
    server: str


def enrol(configuration: AgentConfiguration, one_time_token: str) -> Credentials:
    """Return new credentials, written to the configuration's token file.

    Raises:
        AgentError: if there are some already, or the server does not take the token.
    """
    path = configuration.token_path
    if path.exists():
        raise AgentError(
            "this agent is enrolled already",
            field=str(path),
            remedy="remove the file to enrol it anew, as another agent to the server; a second "
            "agent on this machine needs a --config in another folder",
        )
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    request = _request(configuration, one_time_token)
    client = Client(configuration.server)
    try:
        answer = client.enrol(request)
    except ServerError as error:
        raise _not_enrolled(error, configuration.server) from None
    finally:
        client.close()
    credentials = Credentials(
        agent_id=answer.agent_id, token=answer.token, server=configuration.server
    )
    _write(path, credentials)
    return credentials


def read_credentials(configuration: AgentConfiguration) -> Credentials:
    """Return this agent's credentials.

    Raises:
        AgentError: if there are none, they are another server's, or others could read them.
    """
    path = configuration.token_path
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        credentials = Credentials(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise AgentError(
            "this agent is not enrolled",
            field=str(path),
            remedy="meshwright agent run --server URL --token TOKEN",
        ) from None
    except (OSError, ValueError, TypeError) as error:
        raise AgentError(
            f"is not a token file: {error}", field=str(path), remedy="enrol this agent anew"
        ) from None
    if mode & 0o077:
        raise AgentError(
            "others can read the agent's token",
            field=str(path),
            value=f"mode {mode:04o}",
            remedy=f"chmod 600 {path}; if others may have read it, enrol anew",
        )
    if credentials.server != configuration.server:
        raise AgentError(
            f"the token is that of {credentials.server}",
            field="server",
            value=configuration.server,
            remedy="correct the configuration, or enrol at the new server",
        )
    return credentials


def _request(configuration: AgentConfiguration, one_time_token: str) -> EnrolmentRequest:
    report = node_report(configuration).model_dump()
    try:
        return EnrolmentRequest.model_validate({**report, "enrolment_token": one_time_token})
    except ValidationError as error:
        found = document_error(error, source="this node's report")
        if found.field != "enrolment_token":
            raise found from None
        raise AgentError(
            f"is not a one-time token: {found.problem}",
            field="--token",
            remedy="copy the whole `token` that POST /v1/enrolment-tokens answers",
        ) from None


def _write(path: Path, credentials: Credentials) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _TOKEN_MODE)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(asdict(credentials), file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def _not_enrolled(error: ServerError, server: str) -> AgentError:
    if isinstance(error, AwayError):
        remedy = "is the service running there, and can this node reach it?"
    elif isinstance(error, RefusedError):
        remedy = "ask an administrator for a new one-time token: each works once, for a while"
    else:
        remedy = "try again"
    return AgentError(f"enrolment failed: {error}", field="server", value=server, remedy=remedy)
