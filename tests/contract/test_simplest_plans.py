"""Plans are told in their simplest form, and cost there what they cost as found."""

from benchmarks.case import random_case
from planner.planning import estimate, plan, resolved_cluster, resolved_model
from planner.schema.job import Job

# H100 and B200 with 8 virtual stages each: the ends of their steps differ by rank and choice, and
# the simpler form of the best plan took 0.1 % longer.
CASE = 54


def test_virtual_stages_of_two_kinds_of_devices_cost_what_the_search_found():
    case = random_case(CASE, seed=0, seconds_limit=30.0)
    job = Job.from_fields(case.job, source="job")
    given = resolved_model(case.model), resolved_cluster(case.cluster)
    answer = plan(*given, job)
    assert answer.status == "planned"
    assert answer.strategy.virtual_pipeline_degree > 1
    priced = estimate(*given, job, answer.strategy)
    assert priced.prediction.step_seconds.p50 == answer.prediction.step_seconds.p50
    assert answer.certificate.lower_bound_seconds <= priced.prediction.step_seconds.p50 * (1 + 1e-9)
