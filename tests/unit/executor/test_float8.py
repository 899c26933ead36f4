"""Which linears multiply in fp8, and what is told of all others."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from executor.apply.float8 import Float8, apply_float8, float8_differences
from executor.apply.virtual_stages import VirtualStage
from executor.apply.zero import GradientSync
from executor.errors import UnsupportedPlanError
from executor.models.declaration import ModelDeclaration
from executor.models.decoder import Decoder
from planner.schema.model import ModelGraph
from planner.schema.strategy import Stage
from tests.builders import a_job
from tests.distributed.plans import small_model

EMULATED = Float8(by_rows=False, is_emulated=True)
LINEARS = {
    "attention.query",
    "attention.key",
    "attention.value",
    "attention.output",
    "feed_forward.gate",
    "feed_forward.up",
    "feed_forward.down",
}


def converted(
    graph: ModelGraph, float8: Float8 = EMULATED, *, tensor_degree: int = 1
) -> tuple[Decoder, ModelDeclaration]:
    with torch.device("meta"):
        model = Decoder(graph)
    declaration = model.declaration()
    apply_float8(model, declaration=declaration, float8=float8, tensor_degree=tensor_degree)
    return model, declaration


def in_8_bits(module: nn.Module) -> set[str]:
    return {name for name, part in module.named_modules() if type(part).__name__ == "Float8Linear"}


def told(model: Decoder, declaration: ModelDeclaration, **asked: object) -> list[str]:
    stage = VirtualStage(
        index=0,
        count=1,
        plan=Stage(stage=0, layers=()),
        module=model,
        gradient_sync=GradientSync(),
    )
    given = {"float8": EMULATED, "is_compiled": True, **asked}
    return list(float8_differences([stage], declaration=declaration, **given))  # type: ignore[arg-type]


def test_linears_of_blocks_multiply_in_8_bits_and_keep_their_names() -> None:
    names = [name for name, _ in Decoder(small_model()).named_parameters()]
    model, _ = converted(small_model())
    for block in model.blocks.values():
        assert in_8_bits(block) == LINEARS
    assert in_8_bits(model.head) == in_8_bits(model.embedding) == set()
    assert [name for name, _ in model.named_parameters()] == names


def test_a_size_that_kernels_do_not_take_stays_in_16_bits_and_is_told() -> None:
    """Two ranks share 32 keys, of which each has a multiple of 16; four do not."""
    model, declaration = converted(small_model(), tensor_degree=4)
    assert in_8_bits(model.blocks["0"]) == set()
    (said,) = told(model, declaration, float8=replace(EMULATED, is_emulated=False))
    assert "multiples of 16 run in 16 bits" in said
    assert "attention.key 32 x 32" in said
    model, declaration = converted(small_model(), tensor_degree=2)
    assert in_8_bits(model.blocks["0"]) == LINEARS
    assert told(model, declaration, float8=replace(EMULATED, is_emulated=False)) == []


def test_routers_and_adapters_stay_in_16_bits() -> None:
    peft = pytest.importorskip("peft", reason="no package peft")
    with torch.device("meta"):
        model = Decoder(small_model())
    config = peft.LoraConfig(r=16, target_modules=["query", "down"])
    adapted = peft.inject_adapter_in_model(config, model)
    declaration = adapted.declaration()
    router = replace(declaration.block, routers=("feed_forward.gate",))
    apply_float8(
        adapted,
        declaration=replace(declaration, block=router),
        float8=EMULATED,
        tensor_degree=1,
    )
    expected = LINEARS - {"attention.query", "feed_forward.down", "feed_forward.gate"}
    assert in_8_bits(adapted.blocks["0"]) == expected | {
        "attention.query.base_layer",
        "feed_forward.down.base_layer",
    }


@pytest.mark.parametrize(("by_rows", "scales"), [(False, 1), (True, 32)])
def test_rows_have_scales_of_their_own_where_the_job_says_so(*, by_rows: bool, scales: int) -> None:
    model, _ = converted(small_model(), replace(EMULATED, by_rows=by_rows))
    linear = model.blocks["0"].feed_forward.up.to_empty(device="cpu").bfloat16()
    found: list[torch.Tensor] = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            result = function(*args, **(kwargs or {}))
            if function is torch.amax or function is torch.max:
                found.append(result)
            return result

    nn.init.normal_(linear.weight)
    with Watch():
        linear(torch.randn(32, 32, dtype=torch.bfloat16))
    assert found[0].numel() == scales


def test_what_a_device_or_a_plan_makes_of_fp8_is_told() -> None:
    model, declaration = converted(small_model())
    (said,) = told(model, declaration)
    assert "computed in 16 bits: this device has none in fp8" in said
    on_gpu = replace(EMULATED, is_emulated=False)
    (said,) = told(model, declaration, float8=on_gpu, is_compiled=False)
    assert "fused_elementwise true" in said
    mixture = replace(declaration, shapes=replace(declaration.shapes, expert_count=8))
    (said,) = told(model, mixture, float8=on_gpu)
    assert "routed experts run in 16 bits" in said
    assert told(model, mixture, float8=None) == []


def test_a_model_without_blocks_is_refused() -> None:
    model = nn.Linear(16, 16)
    whole = replace(converted(small_model())[1], blocks="")
    with pytest.raises(UnsupportedPlanError, match=r"job\.precision.*Declaration\(blocks"):
        apply_float8(model, declaration=whole, float8=EMULATED, tensor_degree=1)


def test_a_gpu_without_fp8_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA A100")
    job, device = a_job(precision="fp8"), torch.device("cuda", 0)
    with pytest.raises(UnsupportedPlanError, match=r"job\.precision.*A100 has no products in fp8"):
        Float8.of(job, device)
    assert Float8.of(a_job(), device) is None
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 9))
    assert Float8.of(job, device) == Float8(by_rows=False, is_emulated=False)
    assert Float8.of(job, torch.device("cpu")) == EMULATED
