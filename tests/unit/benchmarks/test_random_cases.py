"""Random cases of the benchmarks: repeatable, valid documents, spread as they say."""

from __future__ import annotations

from benchmarks.case import random_case, random_cases
from benchmarks.random_cases import median_run, summary
from benchmarks.random_clusters import device_count_of, devices_of
from planner.planning import resolved_cluster, resolved_model
from planner.requests.resolution import resolved_request
from planner.schema.job import Job


def test_the_same_seed_draws_the_same_cases() -> None:
    first = list(random_cases(count=20, seed=3, seconds_limit=5.0))
    again = list(random_cases(count=20, seed=3, seconds_limit=5.0))
    other = list(random_cases(count=20, seed=4, seconds_limit=5.0))
    assert first == again
    assert first != other


def test_a_case_is_the_same_alone_and_among_others() -> None:
    among = list(random_cases(count=8, seed=0, seconds_limit=5.0))[7]
    assert random_case(7, seed=0, seconds_limit=5.0) == among


def test_every_case_is_a_valid_request() -> None:
    for case in random_cases(count=150, seed=1, seconds_limit=5.0):
        job = Job.from_fields(case.job, source="job")
        resolved_request(resolved_model(case.model), resolved_cluster(case.cluster), job)


def test_device_counts_reach_from_few_to_thousands() -> None:
    counts = [
        device_count_of(case.cluster) for case in random_cases(count=200, seed=0, seconds_limit=5.0)
    ]
    assert min(counts) <= 4
    assert max(counts) > 4096
    assert max(counts) <= 16384


def test_mixed_clusters_are_drawn_unless_left_out() -> None:
    drawn = list(random_cases(count=100, seed=0, seconds_limit=5.0))
    alone = list(random_cases(count=100, seed=0, seconds_limit=5.0, mixed=False))
    assert any(len(devices_of(case.cluster)) > 1 for case in drawn)
    assert all(len(devices_of(case.cluster)) == 1 for case in alone)


def test_a_hung_case_fails_the_run_however_fast_the_others_are() -> None:
    fast = [{"seconds": 0.1, "status": "proven"}] * 30
    hung = {"seconds": 0.2, "status": "hung"}
    assert summary(fast, seconds_limit=20.0)["passed"]
    assert not summary([*fast, hung], seconds_limit=20.0)["passed"]


def test_slow_cases_beyond_one_in_twenty_fail_the_run() -> None:
    fast, slow = {"seconds": 0.1, "status": "proven"}, {"seconds": 9.0, "status": "feasible"}
    assert summary([*[fast] * 99, slow], seconds_limit=20.0)["passed"]
    assert not summary([*[fast] * 90, *[slow] * 10], seconds_limit=20.0)["passed"]


def test_a_run_fails_where_more_than_one_in_twenty_is_left_with_a_gap() -> None:
    proven, left = {"seconds": 0.1, "status": "proven"}, {"seconds": 0.1, "status": "feasible"}
    gaps = [{**left, "gap_ratio": gap} for gap in (0.009, 0.02, 0.3)]
    found = summary([*[proven] * 27, *gaps], seconds_limit=20.0)
    assert found["answered_ratio"] == 0.9
    assert (found["wide_gap_count"], found["largest_gap_ratio"]) == (2, 0.3)
    assert not found["passed"]


def test_answers_beyond_the_limit_are_counted() -> None:
    cases = [{"seconds": seconds, "status": "feasible"} for seconds in (0.9, 1.0, 1.1)]
    assert summary(cases, seconds_limit=1.0)["late_count"] == 1


def test_of_several_runs_the_median_counts_unless_one_is_bad() -> None:
    runs = [
        {"status": "proven", "seconds": seconds, "peak_resident_bytes": size}
        for seconds, size in ((4.0, 10), (1.0, 30), (2.0, 20))
    ]
    found = median_run(runs)
    assert (found["seconds"], found["runs"], found["peak_resident_bytes"]) == (2.0, 3, 30)
    assert median_run(runs[:2])["seconds"] == 4.0
    crashed = {"status": "crashed", "seconds": 0.1}
    assert median_run([*runs, crashed])["status"] == "crashed"
