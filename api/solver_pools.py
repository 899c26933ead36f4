"""Where solves run, by the settings: processes of this machine, or a Dask cluster's workers."""

from __future__ import annotations

from api.settings import ENVIRONMENT_PREFIX, Settings
from planner.extras import check_extras
from planner.pools.solver_pool import SolverPool

_MODULES = ("api.services.analysis_work",)


def solver_pool(settings: Settings) -> SolverPool:
    """Return the pool for the service's solves, analyses and searches.

    Raises:
        InputError: if the Dask scheduler's address is none, or the extra for it is not installed.
    """
    seconds_limit = settings.solve_seconds_limit
    if not settings.dask_scheduler:
        return SolverPool(
            process_count=settings.solver_processes, seconds_limit=seconds_limit, modules=_MODULES
        )
    field = f"{ENVIRONMENT_PREFIX}DASK_SCHEDULER"
    check_extras(field, "planner.pools.dask_pool")
    from planner.pools.dask_pool import DaskPool, check_scheduler  # noqa: PLC0415 - an extra

    check_scheduler(settings.dask_scheduler, field=field)
    return DaskPool(settings.dask_scheduler, seconds_limit=seconds_limit, modules=_MODULES)
