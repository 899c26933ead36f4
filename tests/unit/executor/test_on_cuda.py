"""What is done otherwise for CUDA devices, by tensors without storage and by a device's facts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.checkpoint.metadata import TensorProperties, TensorStorageMetadata
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

from executor.apply.attention_kernels import Meeting
from executor.apply.materialise import materialise
from executor.cuda_defaults import cuda_defaults, set_cuda_defaults
from executor.errors import LaunchError
from executor.launcher import LaunchRequest, rank_variables
from executor.models.decoder import Decoder, initial_value
from executor.models.first_values import DrawnValues
from executor.optimizer_state import empty_states
from executor.rendezvous import NodePlace
from executor.session import start
from executor.updates import OnHost
from tests.builders import a_plan
from tests.distributed.plans import small_model


def a_meeting(*, width: int, dtype: torch.dtype, device: str = "cuda") -> Meeting:
    """Queries, keys and values on a device that need not be there."""
    with FakeTensorMode():
        query, key, value = (torch.empty(2, 3, 4, width, dtype=dtype, device=device),) * 3
    return Meeting(query=query, key=key, value=value, scale=1.0, is_causal=True)


@pytest.mark.parametrize(
    ("width", "dtype", "capability", "is_taken"),
    [
        (64, torch.bfloat16, (8, 0), True),
        (256, torch.float16, (9, 0), True),
        (64, torch.float32, (9, 0), False),
        (60, torch.bfloat16, (9, 0), False),
        (264, torch.bfloat16, (9, 0), False),
        (64, torch.float16, (7, 5), False),
    ],
)
def test_the_flash_kernel_gets_only_heads_that_it_takes(
    monkeypatch: pytest.MonkeyPatch,
    width: int,
    dtype: torch.dtype,
    capability: tuple[int, int],
    *,
    is_taken: bool,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: capability)
    assert a_meeting(width=width, dtype=dtype).has_cuda_flash is is_taken


def stored(*size: int) -> TensorStorageMetadata:
    """What a checkpoint knows of a state of this shape."""
    properties = TensorProperties(dtype=torch.float32)
    return TensorStorageMetadata(properties=properties, size=torch.Size(size), chunks=[])


@pytest.mark.parametrize(
    ("options", "counts_on"),
    [({}, "cpu"), ({"capturable": True}, "meta"), ({"fused": True}, "meta")],
)
def test_a_count_of_steps_is_read_to_where_the_optimizer_keeps_it(
    options: dict[str, bool], counts_on: str
) -> None:
    """The device that is not the host is the meta device here."""
    parameter = nn.Parameter(torch.empty(4, 3, device="meta"))
    optimizer = torch.optim.AdamW([parameter])
    optimizer.param_groups[0].update(options)
    kinds = {"step": stored(), "exp_avg": stored(4, 3), "row_var": stored(4, 1)}
    states = empty_states(kinds, parameter, optimizer)
    assert states["step"].device.type == counts_on
    assert states["exp_avg"].device.type == "meta"
    assert states["row_var"].device.type == "meta"
    assert states["row_var"].shape == (4, 1)


class _StopHereError(Exception):
    """What comes after needs a GPU."""


def _recorded_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **played: Any) -> None:
    """Have `start` see a node of eight GPUs; `played` are functions of torch.distributed."""
    (tmp_path / "plan.json").write_text(a_plan().to_json())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr("sys.excepthook", sys.excepthook)
    for name, function in played.items():
        monkeypatch.setattr(torch.distributed, name, function)
    variables = {"RANK": "11", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8", "WORLD_SIZE": "8"}
    variables |= {"MESHWRIGHT_PLAN": str(tmp_path / "plan.json")}
    variables |= {"MESHWRIGHT_START_TIMEOUT_SECONDS": "900"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_a_rank_takes_its_device_before_nccl_and_binds_the_group_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """CUDA is played by functions that record what is asked of them, in order."""
    calls: list[Any] = []

    def init(backend: str, **options: Any) -> None:
        calls.append((backend, options))
        raise _StopHereError

    monkeypatch.setattr(torch.cuda, "set_device", calls.append)
    _recorded_start(monkeypatch, tmp_path, is_initialized=lambda: False, init_process_group=init)
    with pytest.raises(_StopHereError):
        start()
    own = torch.device("cuda", 3)
    options = {"timeout": timedelta(seconds=900), "device_id": own}
    assert calls == [own, ("nccl", options)]


def _started_group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """Return what `start` asks of CUDA until it makes the process group, and its environment then.

    The test's environment is put back as it was.
    """
    calls: list[Any] = []

    def init(_backend: str, **options: Any) -> None:
        names = ("PYTORCH_ALLOC_CONF", "TORCH_NCCL_DUMP_ON_TIMEOUT")
        calls.extend([options["device_id"], *(os.environ.get(name) for name in names)])
        raise _StopHereError

    monkeypatch.setattr(torch.cuda, "set_device", lambda _device: None)
    _recorded_start(monkeypatch, tmp_path, is_initialized=lambda: False, init_process_group=init)
    for name in cuda_defaults({}):
        monkeypatch.setenv(name, "")  # put back after the test
        monkeypatch.delenv(name)
    return calls


@pytest.mark.parametrize(
    ("variables", "visible", "index"),
    [
        ({}, 8, 3),
        ({"CUDA_VISIBLE_DEVICES": "5"}, 1, 0),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}, 8, 3),
        ({"ROCR_VISIBLE_DEVICES": "5"}, 1, 0),
        ({"LOCAL_WORLD_SIZE": ""}, 4, 3),
    ],
)
def test_a_rank_takes_the_device_of_its_number_or_the_only_one_that_it_sees(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    variables: dict[str, str],
    visible: int,
    index: int,
) -> None:
    calls = _started_group(monkeypatch, tmp_path)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: visible)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(_StopHereError):
        start()
    assert calls == [torch.device("cuda", index), "expandable_segments:True", "1"]


@pytest.mark.parametrize(("variables", "visible"), [({}, 1), ({"CUDA_VISIBLE_DEVICES": "2,3"}, 2)])
def test_a_rank_without_a_device_of_its_own_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], visible: int
) -> None:
    _started_group(monkeypatch, tmp_path)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: visible)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(LaunchError, match=r"8 ranks here.*its own device alone or all of its"):
        start()


def test_two_ranks_of_one_device_are_told_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _started_group(monkeypatch, tmp_path)
    said = "NCCL error: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000"

    def init(_backend: str, **_options: Any) -> None:
        raise torch.distributed.DistBackendError(said)

    monkeypatch.setattr(torch.distributed, "init_process_group", init)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(LaunchError, match=r"CUDA_VISIBLE_DEVICES: two ranks.*\(got '?0'?\)"):
        start()


@pytest.mark.parametrize(
    ("environment", "is_in_use", "expected"),
    [
        ({}, False, ([], "expandable_segments:True")),
        ({}, True, (["PYTORCH_ALLOC_CONF=expandable_segments:True"], None)),
        ({"PYTORCH_ALLOC_CONF": "backend:native"}, True, ([], "backend:native")),
        ({"PYTORCH_CUDA_ALLOC_CONF": "backend:native"}, True, ([], None)),
    ],
)
def test_the_allocators_setting_comes_before_cuda_or_too_late(
    environment: dict[str, str], *, is_in_use: bool, expected: tuple[list[str], str | None]
) -> None:
    given = dict(environment)
    assert (
        set_cuda_defaults(given, is_in_use=is_in_use),
        given.get("PYTORCH_ALLOC_CONF"),
    ) == expected
    assert given["TORCH_FR_BUFFER_SIZE"] == "2000"


def test_a_group_of_the_scripts_own_without_nccl_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is bound to the rank's device all the same, before anything is sent."""
    devices: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", devices.append)
    _recorded_start(
        monkeypatch,
        tmp_path,
        is_initialized=lambda: True,
        get_backend_config=lambda: "cpu:gloo,cuda:gloo",
    )
    with pytest.raises(LaunchError, match=r"process group: .*NCCL.*cuda:nccl"):
        start()
    assert devices == [torch.device("cuda", 3)]


def test_gpu_ranks_hear_the_watchdog_and_leave_what_they_had_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in (*cuda_defaults({}), "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "50")
    request = LaunchRequest(plan_path=Path("plan.json"), place=NodePlace())
    on_gpu = rank_variables(request, "cuda", Path(), local_ranks=8)
    assert on_gpu["TORCH_CPP_LOG_LEVEL"] == "ERROR"
    assert on_gpu["TORCH_NCCL_DUMP_ON_TIMEOUT"] == "1"
    assert "TORCH_FR_BUFFER_SIZE" not in on_gpu  # as it is
    assert on_gpu["PYTORCH_ALLOC_CONF"] == "expandable_segments:True"
    on_cpu = rank_variables(request, "cpu", Path(), local_ranks=8)
    assert on_cpu["TORCH_CPP_LOG_LEVEL"] == "FATAL"
    assert "PYTORCH_ALLOC_CONF" not in on_cpu


@pytest.mark.parametrize(
    ("device", "cores", "given", "threads"),
    [
        ("cuda", 64, None, "8"),
        ("cuda", 4, None, "1"),
        ("cuda", 64, "3", "3"),
        ("cpu", 64, None, "1"),
    ],
)
def test_gpu_ranks_share_the_cores_of_their_host(
    monkeypatch: pytest.MonkeyPatch,
    *,
    device: str,
    cores: int,
    given: str | None,
    threads: str,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    request = LaunchRequest(plan_path=Path("plan.json"), place=NodePlace())
    variables = rank_variables(request, device, Path(), local_ranks=8)
    assert variables["OMP_NUM_THREADS"] == threads


@pytest.fixture
def lone_rank(tmp_path: Path) -> Iterator[DeviceMesh]:
    """A mesh of this process alone."""
    store = f"file://{tmp_path / 'store'}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def test_a_tied_weight_that_is_offloaded_begins_on_the_host(lone_rank: DeviceMesh) -> None:
    """Two modules hold it, and the second must not take it to the device (meta) again."""
    with torch.device("meta"):
        model = Decoder(small_model(tied=True))
    fully_shard(model, mesh=lone_rank, offload_policy=CPUOffloadPolicy(pin_memory=False))
    materialise(
        model,
        declaration=model.declaration(),
        device=torch.device("meta"),
        values=DrawnValues(initial_value, seed=0),
        on_host=[model.embedding, model.head],
    )
    places = {name: item.device.type for name, item in model.named_parameters()}
    assert places.pop("embedding.weight") == "cpu"
    assert model.head.weight is model.embedding.weight
    assert set(places.values()) == {"meta"}


def test_the_host_reads_what_a_gpu_sends_only_once_the_stream_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Copies, gradients and updated parameters go through pinned memory without waiting."""
    calls: list[str] = []
    empty, copy = torch.empty, torch.Tensor.copy_

    def recorded_empty(*sizes: Any, pin_memory: bool = False, **named: Any) -> torch.Tensor:
        calls.append("pinned" if pin_memory else "pageable")
        return empty(*sizes, **named)

    def recorded_copy(to: torch.Tensor, given: torch.Tensor, **named: Any) -> torch.Tensor:
        calls.append("sent" if named == {"non_blocking": True} else "copied")
        return copy(to, given, **named)

    class Recorded(torch.optim.SGD):
        def __init__(self, parameters: Any) -> None:
            calls.append("made")
            super().__init__(parameters, lr=0.5)
            self.register_step_pre_hook(lambda *_: calls.append("updated"))

    stream = SimpleNamespace(synchronize=lambda: calls.append("waited"))
    monkeypatch.setattr(torch, "empty", recorded_empty)
    monkeypatch.setattr(torch.Tensor, "copy_", recorded_copy)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    parameter = nn.Parameter(torch.tensor([1.0, 2.0]))
    update = OnHost([parameter], Recorded, is_pinned=True)
    assert calls == ["pinned", "sent", "waited", "made"]
    calls.clear()
    parameter.grad = torch.tensor([2.0, 2.0])
    update.step()
    assert calls == ["pinned", "sent", "waited", "updated", "sent", "waited"]
    assert parameter.tolist() == [0.0, 1.0]
