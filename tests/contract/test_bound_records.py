"""A plan's lower bound is evaluated again from its record, and false records are refused."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import DocumentError, InputError, VerificationError
from planner.planning import plan_with_record, resolved_cluster, resolved_model
from planner.proof.bound_record import check_record
from planner.schema.bound_record import BoundRecord
from planner.schema.job import Job
from planner.schema.plan import Plan

LIMITS = {"pipeline_parallel_degree": {"min": 1, "max": 2}, "offload": (), "solver_seconds": 600.0}
JOB = {"global_batch_size": 128, "sequence_length": 8192, "limits": LIMITS}


def recorded(cluster: str, job: dict[str, Any]) -> tuple[Plan, BoundRecord]:
    """The plan of a request that has one, and its record."""
    answer = plan_with_record(resolved_model("llama-3-8b"), resolved_cluster(cluster), Job(**job))
    assert isinstance(answer, tuple)
    return answer


@pytest.fixture(scope="module")
def true() -> tuple[Plan, BoundRecord]:
    return recorded("8xh100-sxm5-80gb", JOB)


def changed(document: Any, **changes: Any) -> Any:
    """The document with some fields overwritten, read again from its JSON."""
    fields = document.model_dump(mode="json")
    for path, value in changes.items():
        *parents, last = path.split("__")
        part = fields
        for name in parents:
            part = part[name]
        part[last] = value
    return type(document).from_fields(fields, source="test")


def test_every_configuration_is_bounded_infeasible_or_trusted_to_an_engine(
    true: tuple[Plan, BoundRecord],
) -> None:
    plan, record = true
    checked = check_record(plan, changed(record))
    counts = (checked.infeasible, checked.bounded, sum(checked.trusted.values()))
    assert sum(counts) == checked.configurations_total == plan.certificate.configurations_total
    assert min(counts[:2]) > 50
    assert checked.trusted["branch and bound"] > 0
    assert counts[2] <= 5


def test_a_framework_is_checked_in_each_part_of_its_space() -> None:
    limits = LIMITS | {"tensor_parallel_degree": 1, "micro_batch_size": 1}
    job = JOB | {"framework": "torchtitan", "limits": limits}
    plan, record = recorded("8xh100-sxm5-80gb", job)
    checked = check_record(plan, record)
    assert checked.configurations_total == plan.certificate.configurations_total > 20


def raised(plan: Plan, record: BoundRecord) -> tuple[Plan, BoundRecord]:
    bound = 1.05 * record.lower_bound_seconds
    plan = changed(plan, certificate__closed_form__lower_bound_seconds=bound)
    return plan, changed(record, lower_bound_seconds=bound)


def miscounted(plan: Plan, record: BoundRecord) -> tuple[Plan, BoundRecord]:
    count = plan.certificate.configurations_total - 1
    return changed(plan, certificate__configurations_total=count), record


def untrusted(plan: Plan, record: BoundRecord) -> tuple[Plan, BoundRecord]:
    assert record.trusted
    return plan, changed(record, trusted=[])


def unpriced(plan: Plan, record: BoundRecord) -> tuple[Plan, BoundRecord]:
    return plan, changed(record, memory_prices_seconds_per_byte=[])


def of_another(plan: Plan, record: BoundRecord) -> tuple[Plan, BoundRecord]:
    return plan, changed(record, plan_id="plan-0")


def programmed(plan: Plan, record: BoundRecord) -> tuple[Plan, BoundRecord]:
    trusted = [
        each.model_dump(mode="json") | {"engine": "integer program"} for each in record.trusted
    ]
    plan = changed(plan, certificate__configurations_programmed=0)
    return plan, changed(record, trusted=trusted)


@pytest.mark.parametrize(
    ("falsify", "named"),
    [
        (raised, "the bound does not hold for"),
        (miscounted, "certificate.configurations_total says"),
        (untrusted, "the bound does not hold for"),
        (unpriced, "the bound does not hold for"),
        (of_another, "the record is of plan-0"),
        (programmed, "trusted to the integer program, which the certificate says had 0"),
    ],
)
def test_what_is_falsified_is_refused(
    true: tuple[Plan, BoundRecord], falsify: Any, named: str
) -> None:
    with pytest.raises(VerificationError, match=named):
        check_record(*falsify(*true))


def test_a_bound_of_several_searches_is_not_recorded() -> None:
    with pytest.raises(InputError, match=r"job\.objective"):
        recorded("8xh100-sxm5-80gb", JOB | {"objective": "memory"})


def test_an_engine_that_no_search_has_is_refused(true: tuple[Plan, BoundRecord]) -> None:
    document = true[1].model_dump(mode="json")
    document["trusted"][0]["engine"] = "hearsay"
    with pytest.raises(DocumentError, match=r"trusted\.0\.engine"):
        BoundRecord.from_fields(document, source="record")
