"""Proven lower bounds of the cost, by closed formulas and by searches that refute cost after cost.

The search that refutes costs with CP-SAT is `cpsat.targets.refutation_bound`, which imports this package.
"""
