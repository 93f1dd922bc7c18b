"""Proven lower bounds of the cost."""
