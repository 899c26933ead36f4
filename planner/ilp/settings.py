"""Settings: every tolerance and every limit of effort of the search, in one place.

Limits of effort are counts, not seconds, so that the same request has the same answer on every
machine. Work is counted in units of about a microsecond of one core (`planner.ilp.engine`). Numbers
without a source were chosen on the random cases of `benchmarks.random_cases`: they decide how long
a proof takes, and never what it proves.
"""

from __future__ import annotations

import numpy as np

# --- tolerances, relative unless said otherwise ---

ROUNDING = 1e-9
"""What sums of a few thousand doubles in another order may differ by, with room to spare."""
FINE_ROUNDING = 1e-12
"""The same of a few dozen."""
NOISE = 1e-13
"""The same of two."""
PROOF_TOLERANCE = 1e-9
"""Two steps that are closer are equal: a plan is optimal if nothing can be below it by more."""
CUTOFF_EASING = 4.0 * PROOF_TOLERANCE
"""Plans at a cutoff count, so that the frontier's own cutoff is above it."""
BETTER_RATIO = 8.0 * PROOF_TOLERANCE
"""What a plan of another part of the space must be better by, more than two such cutoffs differ."""
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
AT_MEMORY_LIMIT = 1.0 - 1e-4
"""A rank that takes more than this of a limit has to be simplified within it."""

# --- prices on which bounds are taken: powers of two, as the best lies within a factor of two ---

MEMORY_PRICES = np.array([0.0, *(2.0**e for e in range(-6, 6))])
FILL_MEMORY_PRICES = MEMORY_PRICES[::2]
"""For fills, which are a small part of most steps."""
HOST_PRICES = np.array([0.0, *(2.0**e for e in range(-4, 7))])
BATCHED_HOST_PRICES = np.array([4.0**e for e in range(-1, 3)])

# --- the loop over configurations ---

SCREENED_AT_ONCE = 256
"""To begin with: twice as many each time once there is a limit, which all below it have to pass."""
SCREENED_REACH = 1.25
"""Configurations with the same prices are screened along up to this multiple of the least bound."""
PREPARED_AT_ONCE = 64
"""Configurations whose costs are looked up together."""
TURN_UNITS = 250_000.0
"""Work of a configuration's first turn of branch and bound; each further turn has twice as much."""
TURN_NODES = 500
"""The same for programs, in nodes of the solver's tree."""
FITTING_UNITS = 1_000_000.0
ANY_FIRST_UNITS = 100_000.0
PROGRESS_SECONDS = 0.1
"""How often progress is told, on which no answer depends."""
FRONTIER_NEAR_HEAD = 8
RUNNERS_UP = 4
SHORTFALLS = 5
SHORTFALLS_LOOKED_AT = 256
SHORTFALL_UNITS = 500_000.0
SHORTFALL_TOLERANCE = 0.01
"""Of the memory that is lacking, which is told in two digits."""
SHORTFALL_FIRST_RATIO = 1.0 / 16.0
SHORTFALL_DOUBLINGS = 12

# --- what is kept in memory ---

CONFIGURATIONS_KEPT = 2
"""A configuration is bounded, reduced and branched on in turn, beside one other."""
FEW_KEPT = 12
"""Measures, levels and choices of a configuration, and of the ones before it."""
INSTANCES_KEPT = 96
PRICES_KEPT = 1536
"""18 kB each for two kinds of blocks."""

# --- bounds of many configurations in arrays ---

QUICK_BLOCK = 8192
"""Configurations that are bounded or screened at once at the most; of more there are rough bounds
before."""
ROUGH_BLOCK = 32_768
PRICED_BLOCK = 4096
"""Rows that are priced at once: more would not fit a cache, fewer wait for the interpreter."""
RANK_GROUPS = 3
COMPARED_CHOICES = 4
LEVEL_RISES = 24

# --- one configuration's bound and heuristic ---

SLOPES_MOST = 12
TIGHTENING_ROUNDS = 8
TIGHTENING_PROGRESS = 1e-4
"""A round that raises a bound by less is the last."""
HEURISTIC_ROUNDS = 16
MOVES_MOST = 60
"""Choices that a rank changes in turn until it fits."""
LEAN_CUT_RATIOS = (0.0, 0.25, 1.0, 4.0)
"""What all of a host's memory is worth beside all of a device's, where cuts are to need little."""
TIGHTNESS_MEMORY_SHARE = 1e-3
TIGHTNESS_MOST = (1.0 + TIGHTNESS_MEMORY_SHARE) * (1.0 + 1e-6)
"""More than any packing that fits costs."""
FITTING_LOADS = 4000

# --- one rank: knapsacks and patterns ---

LABELS_MOST = 3000
LABELS_FEW = 300
"""Labels where a bound alone, or any good packing, will do."""
COMPARED_FROM = 128
"""Labels or sets of patterns from which on those that others beat are left out."""
DOMINANCE_BLOCK = 1024
PATTERN_UNITS_PER_TURN = 80.0
PATTERN_UNITS_PER_SET = 0.5
PATTERN_UNITS_PER_PAIR = 0.0005

# --- loads and cut points ---

LOAD_STATES = 4000
SORTED_MARKS = 4_000_000
SORTED_MARKS_EACH = 64
"""Sorting is quicker where codes are few of many."""
MOVE_CELLS = 10_000_000
WALK_CELLS = 1_000_000
WALK_NAMES = 1 << 61
FEW_STATES = 1 << 16
CELLS_AT_ONCE = 1 << 18
CUTS_TRIED = 20_000
CUTS_TRIED_FIRST = 500
CUTS_TRIED_FOR_PROOF = 4000

# --- decomposition and branch and bound ---

WEIGHT_MOST = 8.0
"""Beyond any that is of use: it keeps a first top from lying infinitely far."""
WEIGHT_SHARE = 0.5
WEIGHT_GAP_LEAST = 0.02
UNITS_PER_RANK = 60.0
DECOMPOSITION_UNITS_PER_CELL = 0.01
SWEEP_UNITS_PER_CELL = 0.004
LOADS_LISTED = 150_000
LOADS_BRANCHED = 8000
LOAD_SUMS = 1_500_000
LINKING_ROUNDS = 3
REGION_REACH_FIRST = 0.001
REGION_WIDTH_LEAST = 1e-6
EVEN_SHARES = (0.0, 0.5, 1.0)
PLANE_ROUNDS_FIRST = 16
PLANE_ROUNDS = 8
PACKING_ROUNDS = 4
"""Steps of the weights between packings of certain loads; of open ones there is one."""
PACKING_SLACK_OPEN = 0.1
PACKING_TURNS_OPEN = 5
PACKING_TURNS_MOST = 100
PATTERNS_MOST = 5000
PATTERN_UNITS_WIDE = 150_000.0
PATTERN_UNITS_WIDE_PER_RANK = 12_500.0
PATTERN_UNITS_NARROW = 700_000.0
UNITS_PER_PACKING = 500.0
UNITS_PER_LOOK = 1000.0

# --- programs and simplest plans ---

PROGRAM_NODES = 20_000
PROGRAM_UNITS_PER_TERM = 7.0
"""It took 2.3 s to tell HiGHS a program of 308,000 terms through PuLP, on two EPYC cores: what is
left of the user's time has to be enough for that."""
CANONICAL_ROUNDS = 2
CANONICAL_SIMPLER = 16
CANONICAL_WEIGHT = 1e-3
CANONICAL_POWER = 1.618033988749895
"""No few powers of whole numbers to the golden ratio add up alike, so that ties have one winner."""

# --- the simplest plan ---

SIMPLE_UNITS = 2_000_000.0
"""Work of all programs that are solved for it together."""
SIMPLE_TERMS = 10_000
"""The terms of each: what larger ones take before their first node is not known beforehand."""
