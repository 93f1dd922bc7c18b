"""Proven lower bounds of the cost: by closed formulas, and by searches that refute one cost after another."""
