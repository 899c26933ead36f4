"""Training configurations of other software: strategies and jobs."""
