"""Foreign formats in: model configurations and cluster descriptions."""
