"""Integrations: a plan in the scripts of other frameworks, which run it by means of their own."""
