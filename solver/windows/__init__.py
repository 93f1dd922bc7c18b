"""Windows of start times and of orders, which follow from a limit on the cost by propagation and shaving."""

from .windows import Shaver, Windows, are_crowded, shaved_windows, windows_of, windows_of_edges

__all__ = ["Shaver", "Windows", "are_crowded", "shaved_windows", "windows_of", "windows_of_edges"]
