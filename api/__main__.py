"""`python -m api` migrates and serves; `... upgrade` only migrates; `... keys` manages keys.

`... audit` shows who did what.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from planner.extras import exit_without_extras

if __name__ == "__main__":
    exit_without_extras("api")

from planner.errors import InputError, MeshwrightError


def main(arguments: Sequence[str]) -> int:
    """Run the command; what an operator can correct is one line, not a traceback."""
    try:
        return _run(list(arguments))
    except MeshwrightError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - a command's output
        return 1


def _run(arguments: Sequence[str]) -> int:
    """Run the command, and import it alone: the whole service takes longer than most of them."""
    match arguments:
        case []:
            from api.serve import main as serve

            return serve()
        case ["upgrade"]:
            from api.migrate import main as upgrade

            return upgrade()
        case ["keys", *rest]:
            from api.keys_command import main as keys

            return keys(rest)
        case ["audit", *rest]:
            from api.audit_command import main as audit

            return audit(rest)
    raise InputError(
        "takes no argument, or `upgrade`, `keys` or `audit`",
        field="python -m api",
        value=" ".join(arguments),
        remedy="set MESHWRIGHT_* variables for everything else",
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
