"""torchtitan's own entry point on CPU ranks, of which it knows nothing: its device is torch.cpu."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch.distributed.fsdp import FSDPModule


def _as_device() -> None:
    """Give torch.cpu what torchtitan asks of a device."""
    torch._utils._get_available_device_type = lambda: "cpu"
    torch.cpu.device_count = lambda: 1
    torch.cpu.current_device = lambda: 0
    torch.cpu.get_device_name = lambda _device=None: "cpu"
    torch.cpu.get_device_properties = lambda _device=None: SimpleNamespace(
        name="cpu", total_memory=2**34
    )
    torch.cpu.reset_peak_memory_stats = lambda: None
    torch.cpu.empty_cache = lambda: None
    torch.cpu.memory_stats = lambda _device=None: {}
    # torchtitan 0.3 is for a later torch than 2.13, which has it.
    torch.distributed.set_timeout = lambda _timeout, _group: None
    divide = FSDPModule.set_gradient_divide_factor

    def divided(module: FSDPModule, factor: float) -> None:
        divide(module, factor)
        module.set_force_sum_reduction_for_comms(True)  # gloo has no operator that does both

    FSDPModule.set_gradient_divide_factor = divided


if __name__ == "__main__":
    _as_device()
    from torchtitan.train import main

    main()
