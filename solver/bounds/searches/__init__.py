"""Lower bounds by search: suppose one cost after another, and refute the largest that time allows.

A supposed cost is called a target. The proofs that no schedule costs at most a target come from windows of
start times (`shaving`), from the work that a device has to do between two times (`energetic`), from linear
programs for the progress of a device's queues (`fluid`), or from all prefixes of the schedules of a few
devices (`prefixes`). The search that refutes targets with CP-SAT is `cpsat.refutation`, which imports this
package.
"""
