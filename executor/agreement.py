"""Agreement: ranks that do something together and all learn whether it went well.

A rank that raises alone leaves the others waiting for it in their next collective.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, TypeVar

from torch import distributed
from torch.distributed.checkpoint.api import CheckpointException

from planner.errors import InputError

Result = TypeVar("Result")

# What reading and writing files of tensors raises when these are not what they should be.
FILE_ERRORS = (
    OSError,
    RuntimeError,
    ValueError,
    LookupError,
    TypeError,
    EOFError,
    AttributeError,
    pickle.PickleError,
)


def together(
    action: Callable[[], Result],
    otherwise: Callable[[str], InputError],
    *,
    group: distributed.ProcessGroup | None = None,
) -> Result:
    """Return what `action` returns; a collective call of `group`, all ranks if it is left out.

    Raises:
        InputError: on every rank, if any rank failed: what the first of these has raised, which is
            `otherwise(reason)` for errors of files.
    """
    problem: InputError | None = None
    try:
        result = action()
    except InputError as error:
        problem = error
    except CheckpointException as error:
        problem = _first_problem(error, otherwise)
    except FILE_ERRORS as error:
        problem = otherwise(_reason(error))
    problems = everyone(problem, group=group)
    for first in problems:
        if first is not None:
            raise first
    return result


def everyone(mine: Any, *, group: distributed.ProcessGroup | None = None) -> list[Any]:
    """Return what every rank has, by rank; a collective call of `group`, which has all ranks."""
    gathered: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(gathered, mine, group=group)
    return gathered


def from_first_rank(value: Any, *, group: distributed.ProcessGroup | None = None) -> Any:
    """Return the `value` of rank 0; a collective call of `group`, which has all ranks."""
    held = [value]
    distributed.broadcast_object_list(held, src=0, group=group)
    return held[0]


def _first_problem(
    error: CheckpointException, otherwise: Callable[[str], InputError]
) -> InputError:
    rank = min(error.failures)
    first, _ = error.failures[rank]
    if isinstance(first, InputError):
        return first
    return otherwise(f"{_reason(first)} on rank {rank}")


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
