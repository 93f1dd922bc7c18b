"""What follows from a limit on the cost: windows of start times and of orders, by propagation and shaving."""

from .shaver import Shaver, shaved, shaved_windows
from .windows import Windows, windows_of, windows_where

__all__ = ["Shaver", "Windows", "shaved", "shaved_windows", "windows_of", "windows_where"]
