"""Auto-parallelism planning: a model and a cluster in, a proven plan out."""
