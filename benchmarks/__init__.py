"""What the planner is measured against: `python -m benchmarks.planning`."""
