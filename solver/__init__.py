"""What proves that a schedule is good, or finds a better one: bounds, exact models and search."""

if __name__ != "tightpipe.solver":
    raise ImportError("import tightpipe.solver, not solver: the folder is a subpackage of tightpipe")
