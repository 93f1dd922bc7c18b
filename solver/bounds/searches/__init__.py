"""Lower bounds by search: suppose one cost after another, and refute as large a one as the time limit allows.

Such a supposed cost is a target. The proofs that no schedule costs at most a target come from windows of
start times (`shaving`), from the work that a device has to do between two times (`energetic`), or from linear
programs for the progress of a device's queues (`fluid`). The search that refutes targets with CP-SAT is
`cpsat.refutation`, which imports this package.
"""
