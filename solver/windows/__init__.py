"""What a cost limit decides: windows of start times and of orders, by propagation and shaving."""

from .shaver import Shaver
from .windows import Windows, windows_of

__all__ = ["Shaver", "Windows", "windows_of"]
