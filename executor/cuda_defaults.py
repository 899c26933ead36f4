"""CUDA defaults: what a GPU rank's environment says of NCCL and of the allocator, unless it does.

Our launcher sets them before a rank starts. Under another launcher a rank sets them itself, which
NCCL heeds until its first group and the allocator until CUDA is in use.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

# NCCL's watchdog says in errors which collective timed out, and its flight recorder leaves what
# each rank had begun. Source: torchtitan's init_distributed, and run_train.sh for the allocator.
_OF_NCCL = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3",
    "TORCH_FR_BUFFER_SIZE": "2000",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
}
_OF_THE_ALLOCATOR = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
_FORMER_NAMES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
_OF_THE_PROCESS = {"TORCH_CPP_LOG_LEVEL": "ERROR"}  # torch reads it as it is imported


def cuda_defaults(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what a process that is to be started on a GPU lacks in its `environment`."""
    allocator = {} if any(map(environment.get, _FORMER_NAMES)) else _OF_THE_ALLOCATOR
    wanted = {**_OF_THE_PROCESS, **_OF_NCCL, **allocator}
    return {name: value for name, value in wanted.items() if name not in environment}


def set_cuda_defaults(environment: MutableMapping[str, str], *, is_in_use: bool) -> list[str]:
    """Set what this process lacks; return what comes too late, as CUDA `is_in_use`."""
    lacking = cuda_defaults(environment)
    late = [name for name in _OF_THE_ALLOCATOR if name in lacking and is_in_use]
    environment.update({name: value for name, value in lacking.items() if name not in late})
    return [f"{name}={lacking[name]}" for name in late]
