"""Requests: what was asked for, resolved, changed in one thing, and searched for."""
