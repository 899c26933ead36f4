"""Products of fp32 run in TF32 where the job says so, and a rank tells where it is otherwise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from executor.precision import take_product_format
from tests.builders import a_job

GPU, PROCESSOR = torch.device("cuda", 0), torch.device("cpu")


@pytest.fixture(autouse=True)
def as_torch_begins() -> Iterator[None]:
    """Products in fp32 before and after."""
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision("highest")


def test_a_job_in_tf32_has_torch_take_it() -> None:
    assert take_product_format(a_job(precision="fp32", tensor_float_32=True), GPU) == ()
    assert torch.get_float32_matmul_precision() == "high"


def test_a_job_in_fp32_leaves_torch_as_it_is_and_tells_where_it_takes_tf32() -> None:
    job = a_job(precision="fp32")
    assert take_product_format(job, GPU) == ()
    assert torch.get_float32_matmul_precision() == "highest"
    torch.set_float32_matmul_precision("high")
    (told,) = take_product_format(job, GPU)
    assert "plan with tensor_float_32 true" in told
    assert take_product_format(a_job(precision="bf16"), GPU) == ()


def test_processors_tell_that_they_have_none() -> None:
    (told,) = take_product_format(a_job(precision="fp32", tensor_float_32=True), PROCESSOR)
    assert told == "products run in fp32, planned in TF32, which processors do not have"
    assert torch.get_float32_matmul_precision() == "highest"
