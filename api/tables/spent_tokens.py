"""Tokens that were good once."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Index, String
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.metadata import Base, UtcDateTime


class SpentTokenRow(Base):
    """A signed token that is worth nothing any more: a link that was followed, an ended session.

    `digest` is the SHA-256 of its random part. After `expires_at` the token is too old anyway.
    """

    __tablename__ = "spent_tokens"
    __table_args__ = (Index("ix_spent_tokens_expires_at", "expires_at"),)

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
