"""Validation: the cost model held against measured runs.

A row becomes a case (model graph, cluster, job, strategy) or a reason why it cannot be priced; a
case is priced and compared with what was measured; comparisons are summed up by group. Nothing is
dropped: every row is counted somewhere.
"""
