"""Secrets of the service itself."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.metadata import Base, UtcDateTime


class ServiceSecretRow(Base):
    """A secret that all processes over one database share, such as the one that signs sessions."""

    __tablename__ = "service_secrets"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[str] = mapped_column(String(128))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
