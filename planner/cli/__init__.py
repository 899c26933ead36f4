"""The `meshwright` command: thin, lazy, and never a traceback."""

from planner.cli.app import main

__all__ = ["main"]
