"""Lower bounds by search: suppose one cost after another, and refute the largest that time allows.

A supposed cost is called a target. The proofs that no schedule costs at most a target come from shaving
windows of start times, or from all prefixes of the schedules of a few devices (both in `destructive`); from
the work that a device has to do between two times (`energetic`); or from linear programs for the progress of
a device's queues (`fluid`). The search that refutes targets with CP-SAT is `cpsat.targets.refutation_bound`,
which imports this package.
"""
