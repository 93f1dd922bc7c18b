"""The plain model: start times and intervals of operations."""
