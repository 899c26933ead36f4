"""Health: whether the process answers, and whether it can do its work."""

from __future__ import annotations

from anyio import CapacityLimiter, fail_after, to_thread

from api.db import UNAVAILABLE, Database
from api.errors import NotReadyError
from api.migrate import head_revision, revision
from api.schemas import Health

_READY_SECONDS = 5.0
# Its own threads, so that it is answered while those of requests wait for the database.
_READY_THREADS = 2


class HealthService:
    """Answers the questions of load balancers."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._threads = CapacityLimiter(_READY_THREADS)

    def alive(self) -> Health:
        """Return that the process answers."""
        return Health(status="ok")

    async def ready(self) -> Health:
        """Return what `check` finds, within some seconds.

        Raises:
            NotReadyError: if the database cannot do its work, or does not answer in time.
        """
        try:
            with fail_after(_READY_SECONDS):
                return await to_thread.run_sync(
                    self.check, limiter=self._threads, abandon_on_cancel=True
                )
        except TimeoutError:
            problem = f"the database did not answer within {_READY_SECONDS:g} s"
            raise NotReadyError(problem) from None

    def check(self) -> Health:
        """Return that the database is reachable and at the newest schema.

        Raises:
            NotReadyError: if it is not.
        """
        try:
            found = revision(self._database)
        except UNAVAILABLE:
            raise NotReadyError("the database cannot be reached") from None
        if found != head_revision():
            raise NotReadyError(
                f"the database is at revision {found}, not {head_revision()}; run "
                "`meshwright db upgrade`"
            )
        return Health(status="ready")
