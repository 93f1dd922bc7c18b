"""What proves or improves: bounds and exact models."""

if __name__ != "tightpipe.solver":
    raise ImportError("import tightpipe.solver, not solver: the folder is a subpackage of tightpipe")
