"""One self-contained HTML page about schedules: table, figures, interactive Gantt charts, explanations."""

from .entry import Entry, Report
from .figures import Figure, load_figures
from .page import render
from .sources import report_of_files, report_of_study

__all__ = ["Entry", "Figure", "Report", "load_figures", "render", "report_of_files", "report_of_study"]
