"""`python -m api` migrates and serves; `python -m api upgrade` only migrates."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from api.migrate import main as upgrade
from api.serve import main as serve
from planner.errors import InputError, MeshwrightError

_COMMANDS: dict[tuple[str, ...], Callable[[], int]] = {(): serve, ("upgrade",): upgrade}


def main(arguments: Sequence[str]) -> int:
    """Run the command; what an operator can mend is one line, not a traceback."""
    try:
        return _command(arguments)()
    except MeshwrightError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - a command's output
        return 1


def _command(arguments: Sequence[str]) -> Callable[[], int]:
    command = _COMMANDS.get(tuple(arguments))
    if command is None:
        raise InputError(
            "takes no argument, or `upgrade`",
            field="python -m api",
            value=" ".join(arguments),
            remedy="set MESHWRIGHT_* variables for everything else",
        )
    return command


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
