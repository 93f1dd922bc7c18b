"""Schedule families: one file each, functions Instance -> Order, listed in HEURISTICS."""

if __name__ != "tightpipe.heuristics":
    raise ImportError("import tightpipe.heuristics, not heuristics: the folder is a subpackage of tightpipe")

from .registry import Heuristic

HEURISTICS: dict[str, Heuristic] = {}
"""The heuristics by name."""

__all__ = ["HEURISTICS", "Heuristic"]
