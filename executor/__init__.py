"""The executor: applies a plan to a torch job, measures it, reports it."""
