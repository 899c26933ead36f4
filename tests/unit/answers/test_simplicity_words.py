"""What is said of a plan beside the fastest one."""

from planner.answers.simplicity_words import fastest_words, simplicity_words
from planner.schema.plan import Interval
from planner.schema.strategy import Strategy
from tests.builders import a_certificate, a_plan, a_prediction, a_simplicity


def words(fastest: Strategy, **changes: object) -> str:
    plan = a_plan(
        certificate=a_certificate(simplicity=a_simplicity(fastest, **changes)),
        prediction=a_prediction(step_seconds=Interval(p10=0.9, p50=1.0, p90=1.1)),
    )
    said = simplicity_words(plan)
    assert said is not None
    return said


def test_a_simpler_plan_names_the_fastest_and_what_it_would_save():
    fastest = Strategy(tensor_parallel_degree=2).resolved(block_count=4, global_batch_size=8)
    assert words(fastest) == (
        "the simplest within 2% of the fastest, with 1 technique (a pipeline), proven; the "
        "fastest, TP 2, 8 micro-batches of 1, takes 990 ms (1.00% less) with 2 "
        "techniques (a pipeline, virtual stages)"
    )


def test_what_is_not_proven_is_not_claimed():
    fastest = Strategy(tensor_parallel_degree=2).resolved(block_count=4, global_batch_size=8)
    assert "as far as was looked" in words(fastest, status="feasible")
    assert "proven" not in words(fastest, status="feasible")


def test_the_fastest_plan_says_that_none_near_it_is_simpler():
    own = a_plan().strategy
    assert words(own, techniques=()) == (
        "it is the fastest, with nothing beyond data parallelism; no simpler plan is within 2% "
        "of it"
    )


def test_a_plan_that_was_to_be_the_fastest_says_nothing():
    assert simplicity_words(a_plan()) is None


def test_in_short_it_is_what_the_fastest_takes():
    fastest = Strategy(tensor_parallel_degree=2).resolved(block_count=4, global_batch_size=8)
    said, own = a_simplicity(fastest), a_plan().strategy
    assert fastest_words(said, own, 1.0) == "the fastest takes 990 ms (1.00% less)"
    assert fastest_words(said, fastest, 0.99) is None
    assert fastest_words(said, own, 0.99004) is None  # 0.00 % less
    assert fastest_words(None, own, 1.0) is None
