"""Formats: one table a training framework, from the paths of its keys to what they set."""
