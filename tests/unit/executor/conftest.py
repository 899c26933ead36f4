"""The executor's unit tests need torch, in one process."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="no package torch")
