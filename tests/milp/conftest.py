"""OR-Tools is loaded before PuLP, as `tightpipe.solver.milp` does it, whichever of these files is run alone."""

import tightpipe.solver.milp  # noqa: F401
