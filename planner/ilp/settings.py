"""Settings: the tolerances and limits of effort of the search.

Limits of effort are counts, not seconds, so that the same request has the same answer on every
machine. Work is counted in units of about a microsecond of one core (`planner.ilp.problem`).
Numbers without a source were chosen on the random cases of `benchmarks.random_cases`: but for the
tolerances, they decide how long a proof takes, and never what it proves.
"""

from __future__ import annotations

import numpy as np

# --- tolerances, relative unless said otherwise ---

ROUNDING = 1e-9
"""What sums of a few thousand doubles in another order may differ by, with room to spare."""
FINE_ROUNDING = 1e-12
"""The same of a few dozen."""
PROOF_TOLERANCE = 1e-9
"""Two steps that are closer are equal: a plan is optimal if nothing can be below it by more."""
CUTOFF_EASING = 4.0 * PROOF_TOLERANCE
"""Plans at a cutoff count, so that the frontier's own cutoff is above it."""
NEVER = 1e200
"""The cost of what may not be, as arrays have no place for inf times 0."""
TINY = 1e-300
"""In place of a divisor of 0."""
SOLVER_FEASIBILITY = 1e-9
"""By how much HiGHS may exceed a row, in the row's own scale."""
SOLVER_ROW_TOLERANCE = 1e-6
"""The same for values that a solver was stopped at, as without a solution it gives any; rows of
known bounds are eased by it."""
PROGRAM_TIGHTENINGS = (0.0, 1e-9, 1e-7, 1e-5)
"""How limits of memory are tightened in turn, where a solver's tolerance let a plan past. As far as
that tolerance itself what it says is a proof: it does not tell such plans from ones beyond."""
CANONICAL_EASING = 1e-10
"""Of a step, within which plans are alike in all but form: what rounding adds is far below it."""
TIE_WEIGHT = 1e-3
"""Of what decides only between choices that are else alike."""

MEMORY_PRICES = np.array([0.0, *(2.0**e for e in range(-6, 7))])
"""On which bounds of many are taken, in units of the blocks' range of cost over that of memory, or
of device over host memory: powers of two, as the best lies within a factor of two of one."""

# --- the loop over configurations ---

SCREENED_AT_ONCE = 256
"""Configurations of the first screens; each has twice as many once a plan is known, up to
ROWS_AT_ONCE. As many are a sample of all, where time is too short or nothing fits."""
TURN_UNITS = 250_000.0
"""Work of a configuration's first turn, each further one of which has twice as much, and of the
patterns of one set of plans."""
TURN_CELLS = 1000
"""Choices of all ranks, and runs of all virtual stages, up to which a program has the first turn
beside branch and bound, and twice as many at each further one: of larger ones HiGHS may take
seconds for the first relaxation."""
UNITS_PER_CELL_LOOK = 3.0
"""Work of a program by these and by how often HiGHS asks whether to stop, at each node and
each round of cuts: 1 to 20 on two EPYC cores."""
FITTING_UNITS = 1_000_000.0
"""Work of looking for any plan, and of the first turn of a program that comes last."""
TOLD_SHARE_RATIO = 0.25
"""Of the work that a search has time for, after which the best plan is told of, though it is not
proven to be. Where none is known, any plan is looked for then."""
UNITS_PER_SCREEN = 30.0
"""Of a configuration in arrays, with memory: 25 us on two EPYC cores, beside 50 ms of a screen."""
UNITS_PER_BOUND = 10_000.0
"""Of a configuration by itself, with its prices and its heuristic plan: 2 to 18 ms. A screen counts
as five, and as ten what a turn takes beside what is counted: 15 to 190 ms."""
TIDIED_SHARE_RATIO = 0.03
"""Of a search's time, for which ranks are tidied behind its end: as much is left to the answer."""
PROGRESS_SECONDS = 0.1
"""How often progress is told, on which no answer depends."""
RUNNERS_UP = 4
"""Alternatives that an answer names."""
SHORTFALLS = 5
"""Configurations that come closest to fitting, which a refusal names."""
SHORTFALL_TOLERANCE = 0.01
"""Of the memory that is lacking, which is told in two digits."""

# --- what is kept in memory ---

CONFIGURATIONS_KEPT = 2
"""A configuration is bounded, reduced and branched on in turn, beside one other."""
FEW_KEPT = 12
"""Measures, levels and choices of a configuration, and of the ones before it; price lists; what of
branching is left to the next search. As many of a sample are tried where time was too short."""
INSTANCES_KEPT = 96
"""As many are priced together."""
PRICES_KEPT = 1536
"""Of all blocks of prices together; 18 kB each for two kinds of layers."""

# --- bounds of many configurations in arrays ---

ROWS_AT_ONCE = 8192
"""Configurations that are bounded, screened or priced at once."""
RANK_GROUPS = 3
"""Of ranks on one kind of device, by micro-batches in flight; each counts as its leanest rank."""
COMPARED_CHOICES = 4
"""Places of each array, two at least, at which it is seen which choices to compare at all."""
LEVEL_RISES = 24
"""Rounds in which a level rises, which is a bound after each."""

# --- one configuration's bound and heuristic ---

HEURISTIC_ROUNDS = 16
"""Bisections of the level of balanced cuts: to 2^-16 of its range, which is less than a block."""
LEAN_TRANSIENTS = 8
"""Limits of transients under which choices are tried where nothing fits otherwise."""

# --- one rank: knapsacks and patterns ---

SETS_MOST = 4000
"""Sets of layers that are looked at under one largest transient, as they are compared; ten times as
many where one rank alone is looked into again."""
SETS_FEW = 300
"""The same where a bound alone, or any good packing, will do; from here on sets that others beat
are left out."""
PATTERN_UNITS_PER_SET = 0.5
"""Of extending a set by layers of one choice."""
PATTERN_UNITS_PER_PAIR = 0.0005
"""Of comparing two sets."""

# --- loads and cut points ---

GUESSES_MOST = 4000
"""Of the virtual stages in which segments of a chain end, for all ranks together."""
MOVE_CELLS = 10_000_000
"""States and loads of a rank that are looked at together: 80 MB for each measure of them."""
WALK_CELLS = 1_000_000
"""The same of states and lengths of a rank's parts along the chain, and of parts put together."""
CELLS_AT_ONCE = 1 << 18
"""2 MB of doubles, which stay in a core's cache."""
CUTS_TRIED = 2000
"""Dead ends before no cuts are found, where there are too many ways to look at all."""

# --- decomposition and branch and bound ---

WEIGHT_MOST = 8.0
"""Beyond any that is of use: it keeps a first top from lying infinitely far."""
WEIGHT_GAP_LEAST = 0.02
"""Of the way to the limit: weights are good enough where no others can raise the bound by more."""
UNITS_PER_TURN = 70.0
"""Of a handful of calls on arrays, however short."""
UNITS_PER_CELL = 0.005
"""Of a price of a load, or of a transition between states."""
LOADS_LISTED = 150_000
"""Of all ranks, before those beyond the limit are left out."""
LOADS_BRANCHED = 8000
"""The same behind that: beyond, a program is due."""
LOAD_SUMS = 1_500_000
"""Moves between sums of loads, where the order of the chain is left aside."""
REGION_REACH_FIRST = 0.001
"""Patterns are listed up to so much above a node's bound, and to more each time none is a plan."""
REGION_WIDTH_LEAST = 1e-6
"""Of the limit: a node is not split by the largest pace or end where both are known within less."""
PLANE_ROUNDS = 12
"""Cutting planes of a node's weights, each of which costs a bound."""
PACKING_ROUNDS = 4
"""Steps of the weights between packings of certain loads; of open ones there is one. As often are
the loads packed that set a bound while many are open."""
UNITS_PER_LOOK = 1000.0
"""Of a node, or a rank's packing, beside what is counted."""

# --- programs and simplest plans ---

PROGRAM_UNITS_PER_TERM = 7.0
"""It took 2.3 s to tell HiGHS a program of 308,000 terms through PuLP, on two EPYC cores: what is
left of the user's time has to be enough for that."""
CANONICAL_POWER = 1.618033988749895
"""No few powers of whole numbers to the golden ratio add up alike, so that ties have one winner."""

# --- the simplest plan ---

SIMPLE_UNITS_PER_SECOND = 100_000.0
"""Work of looking for it in all configurations together, for each second that a job may take."""
SIMPLE_LOOK_UNITS = 30_000.0
"""The most of a first look into a set of plans."""
