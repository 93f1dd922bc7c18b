"""The settings tables of the papers, as data files."""

from .table import Setting, load_settings
from .table5 import Table5Row, load_table5

__all__ = ["Setting", "Table5Row", "load_settings", "load_table5"]
