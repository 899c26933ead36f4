"""Parameter groups of FSDP: what it gathers and reduces at once, which torch shows nobody."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.distributed.fsdp import FSDPModule


def parameter_groups(module: FSDPModule) -> Sequence[Any]:
    """Return the groups of a module that FSDP keeps: one or none before torch 2.12."""
    state: Any = module._get_fsdp_state()  # noqa: SLF001
    if hasattr(state, "_fsdp_param_groups"):
        return tuple(state._fsdp_param_groups)  # noqa: SLF001
    group = state._fsdp_param_group  # noqa: SLF001
    return () if group is None else (group,)
