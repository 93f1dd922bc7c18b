"""A sweep is a declared grid of solves, each of which is run once and kept in one store."""
