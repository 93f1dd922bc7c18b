"""Proven lower bounds of the cost, by closed formulas and by searches that rule out cost after cost."""
