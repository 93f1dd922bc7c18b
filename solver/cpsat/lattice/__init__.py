"""The lattice formulation: queues, and booleans for the order of their elements."""
