"""Whether a space has a plan is asked part by part, and only until there is one."""

import numpy as np

from planner.ilp.frontier import Frontier, Refinement
from planner.ilp.instance import Assignment
from planner.ilp.problem import Effort
from planner.ilp.search import look_for_any

ANY = Assignment(counts=(), cuts=(0, 1))


class Bounds:
    """Bounds of configurations, and which were asked for."""

    def __init__(self, values, leaner):
        self.values = values
        self.leaner = leaner
        self.asked = []
        self.prepared = []

    def memory_bounds(self, indices, *, with_fills):
        """The bounds of some, without fills."""
        assert not with_fills
        self.asked.append(len(indices))
        return np.array([self.values[i] for i in indices])

    def leanest(self, indices):
        """The one that holds no more than another, itself where nothing is said."""
        return {i: self.leaner.get(i, i) for i in indices}

    def is_at_hand(self, index):
        """Whether it was priced."""
        return any(index in block for block in self.prepared)

    def prepare(self, indices):
        """Take note of what is priced together."""
        self.prepared.append(list(indices))


class Search:
    """As much of a search's state as is asked of it."""

    def __init__(self, values, seconds=60.0, leaner=None):
        self.configurations = range(len(values))
        self.pricing = Bounds(values, leaner or {})
        self.frontier = Frontier(keys=[0.0] * len(values), groups=list(range(len(values))))
        self.seconds_left = seconds
        self.looked_into = []

    def effort(self, units):
        """So much work."""
        return Effort(most=units)


def ask(search, has_plan=(), slow=()):
    def look(state, index, effort):
        state.looked_into.append(index)
        if index in slow and effort.most < float("inf"):
            state.frontier.push(index, state.frontier.keys[index])
            return False
        if index in has_plan:
            state.frontier.offer(index, 1.0, ANY)
        else:
            state.frontier.close(index, float("inf"))
        return True

    look_for_any(search, look)
    return search


def test_what_cannot_fit_is_not_looked_into_and_all_is_screened():
    values = [float("inf")] * 6000
    values[7], values[5000] = 3.0, 2.0
    search = ask(Search(values))
    assert search.looked_into == [7, 5000]
    assert search.pricing.asked == [256, 512, 1024, 2048, 2160]
    assert search.frontier.pop() is None


def test_the_least_bound_of_a_part_comes_first_and_a_plan_ends_it():
    search = ask(Search([3.0, 1.0, 2.0] * 1000), has_plan={4})
    assert search.looked_into == [1, 4]
    assert search.pricing.asked == [256]


def test_what_holds_no_less_than_one_without_a_plan_is_not_looked_into():
    search = ask(Search([1.0, 2.0, 3.0, 4.0], leaner={0: 2, 1: 2}))
    assert search.looked_into == [2, 3]
    assert search.frontier.keys.tolist() == [float("inf")] * 4
    assert search.frontier.pop() is None


def test_what_is_looked_into_is_priced_together_though_one_before_it_need_not_be():
    """96 at once: the 97th in order has no plan as the first has none, and others are left."""
    leaner = {96: 0} | dict.fromkeys(range(97, 150), 1)
    search = ask(Search(list(map(float, range(150))), leaner=leaner), slow=set(range(1, 150)))
    assert search.looked_into[:149] == [*range(96), *range(97, 150)]
    assert search.pricing.prepared == [list(range(96)), list(range(97, 150))]


def test_what_holds_no_less_is_looked_into_where_nothing_is_known_of_the_leanest():
    search = ask(Search([1.0, 2.0, 3.0], leaner={0: 2, 1: 2}), has_plan={1}, slow={2})
    assert search.looked_into == [2, 0, 1]
    assert search.frontier.best


def test_what_was_screened_before_comes_first_and_what_was_bounded_is_left():
    begun = Search([4.0, 1.0, 2.0, 3.0])
    begun.frontier.screen([0], np.array([4.0]))
    begun.frontier.refinements[3] = Refinement.BOUNDED
    search = ask(begun)
    assert search.looked_into == [0, 1, 2]
    assert search.pricing.asked == [2]


def test_nothing_is_asked_without_time():
    assert ask(Search([1.0], seconds=0.0)).pricing.asked == []


def test_what_takes_long_is_looked_into_again_when_nothing_else_has_a_plan():
    search = ask(Search([1.0, 2.0, 3.0]), has_plan={0}, slow={0, 1})
    assert search.looked_into == [0, 1, 2, 0]
    assert search.frontier.best


def test_what_takes_long_waits_where_another_has_a_plan():
    search = ask(Search([1.0, 2.0, 3.0]), has_plan={2}, slow={0, 1})
    assert search.looked_into == [0, 1, 2]
    assert search.frontier.keys[0] == 1.0
    assert search.frontier.lower_bound() == 1.0


def test_what_took_long_and_has_no_plan_is_proven_to_have_none():
    search = ask(Search([1.0, 2.0]), slow={0, 1})
    assert search.looked_into == [0, 1, 0, 1]
    assert search.frontier.pop() is None
