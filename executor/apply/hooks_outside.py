"""Hooks outside of selective checkpointing: what ZeRO does inside of a checkpointed block.

Selective checkpointing counts the operators of a block's forward and expects as many, in that
order, when it runs forward again. Experts have a mesh and so a gather of their own inside the
block, and gathers need not come again: what was gathered may still be there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import nn
from torch.utils._python_dispatch import (
    _disable_current_modes,
    _get_current_dispatch_mode_stack,
    _pop_mode,
    _push_mode,
)
from torch.utils.checkpoint import _CachedTorchDispatchMode, _CachingTorchDispatchMode

_SELECTIVE = (_CachedTorchDispatchMode, _CachingTorchDispatchMode)


def keep_hooks_outside(module: nn.Module) -> None:
    """Let the forward hooks that `module` has by now run unseen by selective checkpointing."""
    for hooks in (module._forward_pre_hooks, module._forward_hooks):  # noqa: SLF001
        for key, hook in list(hooks.items()):
            hooks[key] = partial(_outside, hook)


def _outside(hook: Callable[..., Any], *arguments: Any) -> Any:
    with without_selective_checkpointing():
        return hook(*arguments)


@contextmanager
def without_selective_checkpointing() -> Iterator[None]:
    """Leave the modes of selective checkpointing, and no others, while this lasts."""
    # torch has no public way to step out of one mode.
    current = _get_current_dispatch_mode_stack()
    others = [mode for mode in current if not isinstance(mode, _SELECTIVE)]
    if len(others) == len(current):
        yield
        return
    with _disable_current_modes():
        for mode in others:
            _push_mode(mode)
        try:
            yield
        finally:
            for _ in others:
                _pop_mode()
