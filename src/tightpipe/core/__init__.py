"""The ground floor of the package, on which all else stands and which itself needs only `tightpipe.kernels`.

Here are the instance (a scheduling problem), the order and the schedule, their files, the simulator that
gives an order its times, the validator that checks a schedule, and the figures that measure one.
"""
