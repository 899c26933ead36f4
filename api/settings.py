"""Settings: what the environment says about the service, as `MESHWRIGHT_*` variables."""

from __future__ import annotations

import difflib
import ipaddress
import os
from typing import Annotated, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from api.caller import Scope
from planner.errors import InputError
from planner.schema.document import DOCUMENT_BYTES_LIMIT, document_error

ENVIRONMENT_PREFIX = "MESHWRIGHT_"
_RESEMBLANCE = 0.9
_SECRET_LENGTH = 32
_SECRET = "session_secret"  # noqa: S105 - the name of a field


class Settings(BaseSettings):
    """What an operator decides; every field has a default fit for one machine.

    `solver_processes` solve at once, each for at most `solve_seconds_limit`; `queued_solve_limit`
    more may wait. With `dask_scheduler` the workers of that Dask cluster solve in their place. A
    process that others have not seen renew its lease on work for `lease_seconds` counts as dead.
    `anonymous_scopes` are what callers without a key may do: left out, they may read and
    plan on a loopback address, and nothing elsewhere; empty, everybody needs a key.

    An agent that was not heard of for `agent_lease_seconds` has lost its lease; one that was
    offered a lease acknowledges it within `agent_acknowledge_seconds`. A run whose agents stay away
    for `replan_after_seconds` is planned for those that are there; one that goes on with fewer
    devices gets its first plan back `grow_after_seconds` after it was leased, if all it needs is
    idle. For a run that has waited for `reserve_after_seconds` idle agents are kept, so that small
    runs do not overtake it for ever. Each process looks for what is to be done about agents and
    runs every `sweep_seconds`. Logs and metrics of a run are forgotten so many days after its end.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="ignore", allow_inf_nan=False
    )

    database_url: str = "sqlite:///meshwright.db"
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    anonymous_scopes: Annotated[tuple[Scope, ...] | None, NoDecode] = None
    first_key: bool = True
    session_secret: SecretStr | None = None
    session_seconds_limit: Annotated[int, Field(ge=60, le=30 * 86400)] = 12 * 3600
    requests_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] = 6000
    plans_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] = 600
    agent_requests_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] = 3000
    rate_limit_storage: str = "memory://"
    dask_scheduler: str = ""
    solver_processes: Annotated[int, Field(ge=1, le=256)] = 2
    solve_seconds_limit: Annotated[float, Field(gt=0, le=86400)] = 300.0
    queued_solve_limit: Annotated[int, Field(ge=0, le=100_000)] = 64
    lease_seconds: Annotated[float, Field(gt=0, le=3600)] = 30.0
    body_bytes_limit: Annotated[int, Field(ge=1, le=DOCUMENT_BYTES_LIMIT)] = DOCUMENT_BYTES_LIMIT
    body_seconds_limit: Annotated[float, Field(gt=0, le=3600)] = 60.0
    finished_operation_days: Annotated[float, Field(gt=0, le=3650)] = 30.0
    idempotency_key_days: Annotated[float, Field(gt=0, le=3650)] = 2.0
    run_log_days: Annotated[float, Field(gt=0, le=36500)] = 90.0
    run_metric_days: Annotated[float, Field(gt=0, le=36500)] = 365.0
    log_format: Literal["text", "json"] = "text"
    agent_heartbeat_seconds: Annotated[float, Field(gt=0, le=600)] = 3.0
    agent_lease_seconds: Annotated[float, Field(gt=0, le=86400)] = 60.0
    agent_poll_seconds: Annotated[float, Field(gt=0, le=60)] = 20.0
    agent_acknowledge_seconds: Annotated[float, Field(gt=0, le=3600)] = 15.0
    replan_after_seconds: Annotated[float, Field(ge=0, le=86400)] = 60.0
    grow_after_seconds: Annotated[float, Field(ge=0, le=30 * 86400)] = 600.0
    reserve_after_seconds: Annotated[float, Field(ge=0, le=365 * 86400)] = 600.0
    sweep_seconds: Annotated[float, Field(gt=0, le=60)] = 0.5

    @field_validator("allowed_hosts", "anonymous_scopes", mode="before")
    @classmethod
    def _words(cls, value: object) -> object:
        """Return the words of a list that is written with commas or spaces."""
        return value.replace(",", " ").split() if isinstance(value, str) else value

    @field_validator("session_secret")
    @classmethod
    def _not_guessed(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < _SECRET_LENGTH:
            raise ValueError(
                f"is too short; write {_SECRET_LENGTH} characters or more that nobody guesses"
            )
        return value

    @property
    def local(self) -> bool:
        """Return whether only this machine can reach the service."""
        return _is_loopback(self.host)

    @property
    def scopes_without_key(self) -> frozenset[Scope]:
        """Return what callers may do without a key."""
        if self.anonymous_scopes is None:
            return frozenset({Scope.READ, Scope.PLAN}) if self.local else frozenset()
        return frozenset(self.anonymous_scopes)

    @property
    def embedded(self) -> bool:
        """Return whether the database is a file that this one process owns."""
        return self.database_url.startswith("sqlite")


def read_settings() -> Settings:
    """Return the settings of this process's environment.

    Raises:
        InputError: naming the first variable that cannot be understood.
    """
    _check_names()
    try:
        return Settings()
    except ValidationError as error:
        found = document_error(error, source="the environment")
        raise InputError(
            found.problem,
            field=ENVIRONMENT_PREFIX + found.field.upper(),
            value=None if found.field == _SECRET else found.value,
            remedy=f"{found.remedy}, or leave the variable out",
        ) from None


def _check_names() -> None:
    """Refuse a variable that is all but a setting: whoever set it thinks that it is in force.

    Raises:
        InputError: naming it, and the setting that it resembles.
    """
    known = [ENVIRONMENT_PREFIX + name.upper() for name in Settings.model_fields]
    for name in sorted(os.environ):
        if not name.startswith(ENVIRONMENT_PREFIX) or name in known:
            continue
        resembled = difflib.get_close_matches(name, known, n=1, cutoff=_RESEMBLANCE)
        if resembled:
            raise InputError(
                "is not a setting", field=name, remedy=f"write {resembled[0]}, or leave it out"
            )


def check_address(settings: Settings) -> None:
    """Refuse to be reachable from other machines without asking for keys.

    Raises:
        InputError: if the host is not a loopback address and callers without a key may do things.
    """
    if settings.local or not settings.scopes_without_key:
        return
    raise InputError(
        f"would let everybody who reaches {settings.host or 'any address'} in without a key",
        field=ENVIRONMENT_PREFIX + "ANONYMOUS_SCOPES",
        value=",".join(sorted(settings.scopes_without_key)),
        remedy="leave it out, so that everybody needs a key, or set MESHWRIGHT_HOST=127.0.0.1",
    )


def check_keys(settings: Settings, *, any_usable: bool) -> None:
    """Refuse to be reachable from other machines while nobody could be let in.

    Raises:
        InputError: if the host is not a loopback address and there is no key.
    """
    if settings.local or any_usable:
        return
    raise InputError(
        "is reachable from other machines, and there is no key yet to let anybody in",
        field=ENVIRONMENT_PREFIX + "HOST",
        value=settings.host,
        remedy="make one first: meshwright keys create --name admin --scope read --scope plan "
        "--scope run --scope admin",
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
