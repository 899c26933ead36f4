"""PostgreSQL: an engine none of whose waits is without an end."""

from __future__ import annotations

from typing import Any

from psycopg import Connection, OperationalError
from psycopg.pq import TransactionStatus
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL

# libpq waits for ever where nobody says how long; a server that is there answers in milliseconds.
_CONNECT_SECONDS = 3
_POOL_SECONDS = 3
# What the server itself ends in time is told as an error, and its connection can be used again.
_GRACE_SECONDS = 2.0


def postgres_engine(url: URL, *, wait_seconds: float) -> Engine:
    """Return an engine whose statements end, or fail, within `wait_seconds` and a little.

    The server ends a statement that takes longer. One that does not answer at all, because it is
    stopped or unreachable, ends nothing: its connection is closed from this side.
    """
    connecting = {} if "connect_timeout" in url.query else {"connect_timeout": _CONNECT_SECONDS}
    engine = create_engine(
        url, pool_pre_ping=True, pool_timeout=_POOL_SECONDS, connect_args=connecting
    )

    class BoundedConnection(Connection[Any]):
        """A connection that waits for a silent server only so long."""

        def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
            try:
                return super().wait(gen, interval, timeout or wait_seconds + _GRACE_SECONDS)
            except OperationalError:
                if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                    self.close()
                raise

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: Any, _record: Any, args: Any, options: Any) -> Connection[Any]:
        return BoundedConnection.connect(*args, **options)

    @event.listens_for(engine, "connect")
    def _limit_statements(connection: Connection[Any], _record: object) -> None:
        connection.execute(f"SET statement_timeout = {int(1000 * wait_seconds)}")
        connection.commit()

    return engine
