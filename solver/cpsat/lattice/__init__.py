"""The lattice model: start times of items, and booleans for the orders of items of different queues."""
