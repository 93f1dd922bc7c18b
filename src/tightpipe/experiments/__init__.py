"""Experiments over many instances."""
