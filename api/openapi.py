"""`python -m api.openapi > docs/openapi.json` refreshes the description that is committed."""

from __future__ import annotations

import json
import sys

from planner.extras import exit_without_extras

if __name__ == "__main__":
    exit_without_extras("api.openapi")

from api.app import create_app
from api.settings import Settings


def main() -> int:
    """Print the OpenAPI description."""
    description = create_app(Settings(database_url="sqlite://")).openapi()
    json.dump(description, sys.stdout, indent=2, sort_keys=True)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
