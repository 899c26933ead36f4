"""Tokens of agents: made with 256 bits of the system's randomness, kept as their SHA-256 only."""

from __future__ import annotations

import hashlib
import secrets

AGENT_PREFIX = "mwa_"
ENROLMENT_PREFIX = "mwe_"


def new_token(prefix: str) -> str:
    """Return a token that nobody has; its prefix tells what it is for, also in a leaked log."""
    return prefix + secrets.token_urlsafe(32)


def token_hash(token: str) -> str:
    """Return what is kept of a token. It is random throughout, so that it needs no salt."""
    return hashlib.sha256(token.encode()).hexdigest()
