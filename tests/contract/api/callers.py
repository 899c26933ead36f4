"""Callers that tests put in a client's place."""

from __future__ import annotations

from api.caller import DEFAULT_PROJECT, Caller, Scope

LOCAL = Caller(project_id=DEFAULT_PROJECT, name="local", scopes=frozenset(Scope), key_id=None)
