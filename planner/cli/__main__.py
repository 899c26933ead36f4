"""`python -m planner.cli` is the `meshwright` command."""

from planner.cli.app import main

main()
