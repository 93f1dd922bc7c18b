"""Lower bounds by search: suppose one cost after another, and refute the largest that time allows.

The search that refutes targets with CP-SAT is `cpsat.targets.refutation_bound`, which imports this package.
"""
