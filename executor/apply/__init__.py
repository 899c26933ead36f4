"""Techniques, one module each, and the order in which they are applied to a model."""
