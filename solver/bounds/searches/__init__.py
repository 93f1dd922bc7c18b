"""Lower bounds by search: the largest cost that is proven, within a time limit, to be that of no schedule.

Each search asks costs ("targets") above the best of the closed formulas, and leaves the proof to windows of
start times (`shaving`), to the work that a device has to do between two times (`energetic`), or to linear
programs of its progress (`fluid`). The search that asks CP-SAT is `cpsat.refutation`: it lies above.
"""
