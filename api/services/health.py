"""Health: whether the process answers, and whether it can do its work."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError

from api.db import Database
from api.errors import NotReadyError
from api.migrate import head_revision, revision
from api.schemas import Health


class HealthService:
    """Answers the questions of load balancers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def alive(self) -> Health:
        """Return that the process answers."""
        return Health(status="ok")

    def ready(self) -> Health:
        """Return that the database is reachable and at the newest schema.

        Raises:
            NotReadyError: if it is not.
        """
        try:
            found = revision(self._database)
        except DBAPIError:
            raise NotReadyError("the database cannot be reached") from None
        if found != head_revision():
            raise NotReadyError(
                f"the database is at revision {found}, not {head_revision()}; run "
                "`meshwright db upgrade`"
            )
        return Health(status="ready")
