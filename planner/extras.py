"""Extras: the parts of the distribution that plain `pip install meshwright` leaves out.

Whatever starts one of these parts asks here first, so that what is missing is named before anything
else is done, and not by the import that fails.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

from planner.errors import MissingExtraError

_SERVICE = (  # of plotly and fastapi_offline files alone are served
    "alembic", "fastapi", "fastapi_offline", "itsdangerous", "jinja2", "limits", "markupsafe",
    "plotly", "prometheus_client", "psycopg", "pydantic_settings", "python_multipart", "sqlalchemy",
    "starlette", "structlog", "uvicorn",
)  # fmt: skip
# module that is started -> the extra that it belongs to, and what that has it import
NEEDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "api": ("service", _SERVICE),
    "executor": ("executor", ("torch", "safetensors")),
    "executor.apply.float8": ("fp8", ("torchao",)),
    "executor.models.quantized_linear": ("qlora", ("bitsandbytes",)),
    "executor.agent": ("executor", ("httpx",)),
    "meshwright.client": ("client", ("httpx",)),
    "planner.pools.dask_pool": ("dask", ("distributed",)),
    "meshwright.integrations.accelerate": ("hugging-face", ("torch", "accelerate")),
    "meshwright.integrations.hugging_face": (
        "hugging-face",
        ("torch", "transformers", "accelerate"),
    ),
    "meshwright.integrations.lightning": ("lightning", ("torch", "lightning")),
    "meshwright.integrations.torchtitan": ("torchtitan", ("torch", "torchtitan")),
}


def check_extras(program: str, *modules: str) -> None:
    """Raise unless everything is installed that `modules` import.

    Raises:
        MissingExtraError: naming the extras that `program` lacks, and how they are installed.
    """
    needs = map(_need, modules)
    missing = list(dict.fromkeys(extra for extra, packages in needs if _lacks(packages)))
    if not missing:
        return
    names = " and ".join(missing)
    noun = "extra" if len(missing) == 1 else "extras"
    verb = "is" if len(missing) == 1 else "are"
    raise MissingExtraError(
        f"needs the {noun} {names}, which {verb} not installed",
        field=program,
        remedy=f"run: pip install 'meshwright[{','.join(missing)}]'",
    )


def exit_without_extras(module: str) -> None:
    """End this process, `python -m module`, with one line and status 1 if something is missing."""
    try:
        check_extras(f"python -m {module}", module)
    except MissingExtraError as error:
        sys.exit(f"error: {error}")


def _need(module: str) -> tuple[str, tuple[str, ...]]:
    """Return the need of the module, or of the nearest package around it that has one."""
    while module not in NEEDS:
        module, _, _ = module.rpartition(".")
    return NEEDS[module]


def _lacks(packages: tuple[str, ...]) -> bool:
    return any(find_spec(package) is None for package in packages)
