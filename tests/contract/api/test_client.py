"""The Python client against a service in a process of its own, on loopback."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from meshwright import client as client_module
from meshwright.client import Client, ServiceError
from planner.schema.plan import Infeasible, Plan
from planner.schema.service import Operation
from tests.contract.api.processes import Running, serving

README = Path(__file__).parents[3] / "README.md"
TINY = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 4096,
    "max_position_embeddings": 1024,
}  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("client")
    with serving(folder, database_url=f"sqlite:///{folder}/meshwright.db") as running:
        yield running


def test_the_quick_start_runs_as_it_is_written(
    service: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    """But for the port, which is free here."""
    section = README.read_text(encoding="utf-8").split("## Against a service, from Python")[1]
    (code,) = re.findall(r"```python\n(.*?)```", section.split("\n## ")[0], re.DOTALL)

    exec(code.replace("http://127.0.0.1:8000", service.url), {})  # noqa: S102

    step, names, files, refused = capsys.readouterr().out.splitlines()
    assert step.endswith(" optimal ()")
    assert names == "['8B, batch 512']"
    assert "toml" in files
    assert refused.startswith("job.sequence_length")


def test_a_plan_is_waited_for_and_read_again(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answered with an operation at first, as a search is that outlasts the wait."""
    monkeypatch.setattr(client_module, "_ROUND_SECONDS", 0)
    told: list[Operation] = []
    job = {"global_batch_size": 16, "sequence_length": 256}
    with Client(service.url) as client:
        plan = client.plan(TINY, "8xh100-sxm5-80gb", job, on_progress=told.append)
        assert isinstance(plan, Plan)
        assert client.read_plan(plan.id) == plan
        priced = client.estimate(TINY, "8xh100-sxm5-80gb", plan.strategy, job)
        client.delete_plan(plan.id)
        with pytest.raises(ServiceError, match=f"404 .*{plan.id}") as gone:
            client.read_plan(plan.id)

    assert {operation.state.value for operation in told} == {"running"}
    assert priced.prediction.step_seconds == plan.prediction.step_seconds
    assert gone.value.problem.type == "urn:meshwright:problem:not-found"


def test_an_infeasible_job_is_an_answer(service: Running) -> None:
    with Client(service.url) as client:
        answer = client.plan(
            "llama-3-70b", "1xt4-16gb", {"global_batch_size": 1, "sequence_length": 128}
        )
    assert isinstance(answer, Infeasible)
    assert answer.binding


def test_what_is_no_service_of_ours_is_a_problem_too() -> None:
    """A page of a proxy, where the service should answer."""
    asked = httpx.Request("GET", "http://proxy.example/v1/plans/plan-1")
    error = ServiceError(client_module._problem(httpx.Response(502, html="<h1>", request=asked)))
    assert str(error) == f"502 {asked.url} did not answer as a Meshwright service does"


def test_a_key_that_is_unknown_is_refused_with_what_to_do(service: Running) -> None:
    with Client(service.url, key="mw_unknown") as client, pytest.raises(ServiceError) as refused:
        next(client.plans())
    assert refused.value.problem.status == 401
