"""`python -m meshwright` is the `meshwright` command."""

from planner.cli.app import main

main()
