"""What is best: instance, bounds, formulation, solution, search."""
