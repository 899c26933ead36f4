"""The scatter of step, memory and cost."""

from dataclasses import replace

from api.dashboard.scatter import Spot, scatter, undominated
from planner.units import GIB


def a_spot(label, step, gib, cost=1.0):
    return Spot(
        label=label,
        words=label,
        step_seconds=step,
        peak_memory_bytes=gib * GIB,
        cost_per_million_tokens=cost,
    )


def test_what_is_worse_in_everything_is_beaten():
    spots = [a_spot("A", 1.0, 10.0), a_spot("B", 2.0, 5.0), a_spot("C", 2.0, 12.0)]
    assert [spot.label for spot in undominated(spots)] == ["A", "B"]


def test_a_simpler_spot_is_not_beaten_where_that_counts():
    spots = [a_spot("A", 1.0, 10.0), a_spot("B", 2.0, 12.0)]
    many, few = (replace(spot, technique_count=3 - at) for at, spot in enumerate(spots))
    assert undominated([many, few]) == (many, few)


def test_a_cheaper_spot_is_not_beaten():
    spots = [a_spot("A", 1.0, 10.0), a_spot("B", 2.0, 12.0, cost=0.5)]
    assert [spot.label for spot in undominated(spots)] == ["A", "B"]


def test_steps_that_differ_many_times_are_in_logarithms():
    """From 10 s to 1,000 s: 0.18 of two decades are left free at both ends."""
    axis = scatter([a_spot("A", 10.0, 10.0), a_spot("B", 1000.0, 5.0)])["layout"]["xaxis"]
    assert axis["type"] == "log"
    assert axis["range"] == [1.0 - 0.36, 3.0 + 0.36]
    assert (
        "type" not in scatter([a_spot("A", 10.0, 1.0), a_spot("B", 49.0, 2.0)])["layout"]["xaxis"]
    )


def test_labels_of_neighbours_are_on_both_sides_but_none_below_the_axis():
    spots = [a_spot("C", 3.0, 30.0), a_spot("A", 1.0, 70.0), a_spot("B", 2.0, 60.0)]
    (kept,) = scatter([*spots, a_spot("D", 4.0, 5.0)])["data"]
    places = dict(zip(kept["text"], kept["textposition"], strict=True))
    assert places == {
        "A": "top center",
        "B": "bottom center",
        "C": "top center",
        "D": "top center",
    }


def test_beaten_spots_are_hollow_and_each_capacity_is_a_line():
    spots = [a_spot("A", 1.0, 10.0), a_spot("B", 2.0, 12.0)]
    figure = scatter(spots, capacities_bytes=[70.0 * GIB, 35.0 * GIB])
    symbols = {trace["name"]: trace["marker"]["symbol"] for trace in figure["data"]}
    assert symbols == {"Not beaten": "circle", "Beaten": "circle-open"}
    assert [line["y0"] for line in figure["layout"]["shapes"]] == [70.0, 35.0]
