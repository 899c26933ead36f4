"""Where the work of a command is done: in this process, or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from planner.errors import InputError
from planner.extras import check_extras

if TYPE_CHECKING:
    from planner.pools.dask_pool import DaskPool

_OPTION = "--dask"


@contextmanager
def dask_pool(address: str | None) -> Iterator[DaskPool | None]:
    """Yield a pool on the cluster of the scheduler at `address`, nothing where none is given.

    What runs there at the end, as after an interrupt, is ended.

    Raises:
        InputError: if it is no address, or the cluster has no workers.
        DaskLostError: if the scheduler cannot be reached.
    """
    if not address:
        yield None
        return
    check_extras(_OPTION, "planner.pools.dask_pool")
    from planner.pools.dask_pool import DaskPool, check_scheduler

    check_scheduler(address, field=_OPTION)
    pool = DaskPool(address, seconds_limit=float("inf"))
    try:
        if pool.place_count() == 0:
            raise InputError(
                "has no workers",
                field=_OPTION,
                value=address,
                remedy=f"start one: dask worker {address} --no-nanny",
            )
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
