"""The core of the package: all other parts build on it, and it builds only on `tightpipe.kernels`.

It holds the instance (a scheduling problem), the order and the schedule, their files, the simulator that
gives an order its times, the validator that checks a schedule, and the figures that measure a schedule.
"""
