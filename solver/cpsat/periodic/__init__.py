"""The CP-SAT model of a repeating block with a given period."""
