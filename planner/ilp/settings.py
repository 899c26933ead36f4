"""Settings: every tolerance and every limit of effort of the search, in one place.

Limits of effort are counts, not seconds, so that the same request has the same answer on every
machine. Work is counted in units of about a microsecond of one core (`planner.ilp.problem`).
Numbers without a source were chosen on the random cases of `benchmarks.random_cases`: they decide
how long a proof takes, and never what it proves.
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
"""How limits of memory are tightened in turn, where a solver's tolerance let a plan past."""
CANONICAL_EASING = 1e-10
"""Plans whose steps are as close are alike in all but form."""
TIE_WEIGHT = 1e-3
"""Of what decides only between choices that are else alike."""

# --- prices on which bounds are taken: powers of two, as the best lies within a factor of two ---

MEMORY_PRICES = np.array([0.0, *(2.0**e for e in range(-6, 7))])

# --- the loop over configurations ---

SCREENED_AT_ONCE = 256
"""To begin with: twice as many each time once there is a limit, which all below it have to pass."""
TURN_UNITS = 250_000.0
"""Work of a configuration's first turn, each further one of which has twice as much, and of the
patterns of one set of plans."""
TURN_CELLS = 500
"""Choices of all ranks together, up to which a program has turns beside branch and bound: for
larger ones HiGHS may take seconds for the first relaxation, in which nothing stops it."""
UNITS_PER_CELL_LOOK = 3.0
"""Work of a program by these choices and by how often HiGHS asks whether to stop, at each node and
each round of cuts: 1 to 20 on two EPYC cores."""
FITTING_UNITS = 1_000_000.0
"""Work of looking for any plan, and the most of a turn."""
TOLD_SHARE_RATIO = 0.25
"""Of a search's time, after which the best plan is told of, though it is not proven to be. Where
none is known, any plan is looked for then."""
PROGRESS_SECONDS = 0.1
"""How often progress is told, on which no answer depends."""
RUNNERS_UP = 4
SHORTFALLS = 5
SHORTFALL_TOLERANCE = 0.01
"""Of the memory that is lacking, which is told in two digits."""

# --- what is kept in memory ---

CONFIGURATIONS_KEPT = 2
"""A configuration is bounded, reduced and branched on in turn, beside one other."""
FEW_KEPT = 12
"""Measures, levels and choices of a configuration, and of the ones before it."""
INSTANCES_KEPT = 96
"""As many are priced together."""
PRICES_KEPT = 1536
"""18 kB each for two kinds of blocks."""

# --- bounds of many configurations in arrays ---

ROWS_AT_ONCE = 8192
"""Configurations that are bounded, screened or priced at once."""
RANK_GROUPS = 3
COMPARED_CHOICES = 4
LEVEL_RISES = 24

# --- one configuration's bound and heuristic ---

HEURISTIC_ROUNDS = 16
LEAN_TRANSIENTS = 8
"""Limits of transients under which choices are tried where nothing fits otherwise."""

# --- one rank: knapsacks and patterns ---

SETS_MOST = 4000
"""Sets of layers that are looked at under one largest transient, as they are compared."""
SETS_FEW = 300
"""The same where a bound alone, or any good packing, will do; from here on sets that others beat
are left out."""
PATTERN_UNITS_PER_SET = 0.5
PATTERN_UNITS_PER_PAIR = 0.0005

# --- loads and cut points ---

GUESSES_MOST = 4000
"""Of the virtual stages in which segments of a chain end, for all ranks together."""
MOVE_CELLS = 10_000_000
WALK_CELLS = 1_000_000
CELLS_AT_ONCE = 1 << 18
CUTS_TRIED = 2000

# --- decomposition and branch and bound ---

WEIGHT_MOST = 8.0
"""Beyond any that is of use: it keeps a first top from lying infinitely far."""
WEIGHT_GAP_LEAST = 0.02
UNITS_PER_TURN = 70.0
UNITS_PER_CELL = 0.005
LOADS_LISTED = 150_000
LOADS_BRANCHED = 8000
LOAD_SUMS = 1_500_000
REGION_REACH_FIRST = 0.001
REGION_WIDTH_LEAST = 1e-6
PLANE_ROUNDS = 12
PACKING_ROUNDS = 4
"""Steps of the weights between packings of certain loads; of open ones there is one. As often are
the loads packed that set a bound while many are open."""
UNITS_PER_LOOK = 1000.0

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
