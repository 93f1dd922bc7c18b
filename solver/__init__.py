"""Bounds, exact models and searches, which prove how good a schedule is or find a better one."""

if __name__ != "tightpipe.solver":
    raise ImportError("import tightpipe.solver, not solver: the folder is a subpackage of tightpipe")
