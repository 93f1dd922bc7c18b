"""Sweeps: a declared grid of solves, run once each and kept in one store."""
