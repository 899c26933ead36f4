"""Settings: what the environment says about the service, as `MESHWRIGHT_*` variables."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from planner.errors import InputError
from planner.schema.document import DOCUMENT_BYTES_LIMIT, document_error

ENVIRONMENT_PREFIX = "MESHWRIGHT_"


class Settings(BaseSettings):
    """What an operator decides; every field has a default fit for one machine.

    `solver_processes` solve at once, each for at most `solve_seconds_limit`; `queued_solve_limit`
    more may wait. A service that has not renewed its lease on a solve for `lease_seconds` counts
    as dead.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, frozen=True, extra="ignore", allow_inf_nan=False
    )

    database_url: str = "sqlite:///meshwright.db"
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    allow_public: bool = False
    solver_processes: Annotated[int, Field(ge=1, le=256)] = 2
    solve_seconds_limit: Annotated[float, Field(gt=0, le=86400)] = 300.0
    queued_solve_limit: Annotated[int, Field(ge=0, le=100_000)] = 64
    lease_seconds: Annotated[float, Field(gt=0, le=3600)] = 30.0
    body_bytes_limit: Annotated[int, Field(ge=1, le=DOCUMENT_BYTES_LIMIT)] = DOCUMENT_BYTES_LIMIT
    log_format: Literal["text", "json"] = "text"

    @property
    def embedded(self) -> bool:
        """Return whether the database is a file that this one process owns."""
        return self.database_url.startswith("sqlite")


def read_settings() -> Settings:
    """Return the settings of this process's environment.

    Raises:
        InputError: naming the first variable that cannot be understood.
    """
    try:
        return Settings()
    except ValidationError as error:
        found = document_error(error, source="settings")
        raise InputError(
            found.problem,
            field=ENVIRONMENT_PREFIX + found.field.upper(),
            value=found.value,
            remedy="correct the variable or leave it out",
        ) from None


def check_address(settings: Settings) -> None:
    """Refuse to be reachable from other machines by accident: nothing here authenticates yet.

    Raises:
        InputError: if the host is not a loopback address and that was not allowed outright.
    """
    if settings.allow_public or _is_loopback(settings.host):
        return
    raise InputError(
        "is reachable from other machines, and this release has no authentication",
        field=ENVIRONMENT_PREFIX + "HOST",
        value=settings.host,
        remedy="use 127.0.0.1, or set MESHWRIGHT_ALLOW_PUBLIC=true where a proxy or firewall "
        "guards the port",
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
