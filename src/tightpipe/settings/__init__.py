"""The settings tables of the papers, as data files."""

from .table import Setting, load_settings

__all__ = ["Setting", "load_settings"]
