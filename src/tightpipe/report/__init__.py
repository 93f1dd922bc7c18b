"""A report is one HTML page about schedules, with a table, figures, Gantt charts and explanations.

The page needs no other file and no network.
"""

from .page import render
from .sources import Entry, Figure, Report, report_of_files, report_of_study

__all__ = ["Entry", "Figure", "Report", "render", "report_of_files", "report_of_study"]
