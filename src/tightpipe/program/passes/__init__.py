"""Passes that overlap communication with computation."""
