"""What is best: the search over configurations, its bounds, its exact engine and its program."""
