"""The CP-SAT model."""
