"""Grids of solves: comparisons of methods, sweeps and studies, with their tables and figures."""
