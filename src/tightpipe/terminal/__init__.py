"""Functions by which commands show tables, JSON and progress in a terminal."""
