"""Proven lower bounds of the cost, by closed formulas and by searches that refute cost after cost."""
