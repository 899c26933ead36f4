"""Exporters: a plan in the words of the software that is to run it."""
