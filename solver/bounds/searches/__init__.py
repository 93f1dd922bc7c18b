"""Lower bounds by search: refute one cost after another, each larger than the last, within a time limit.

Such a supposed cost is a target. The proofs that no schedule costs at most a target come from windows of
start times (`shaving`), from the work that a device has to do between two times (`energetic`), or from linear
programs of its progress (`fluid`). The search that refutes targets with CP-SAT is `cpsat.refutation`, which
imports this package.
"""
