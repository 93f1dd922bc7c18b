"""Passes that reorder task lists and programs so that communication overlaps with computation.

Here, a task is a computation, the start of a communication, or a wait for its end, on one device.
"""

from .adjacent_swaps import raise_comms_within_memory, sink_waits_within_memory
from .composition import DEFAULT_PASSES, PASSES, PassReport, run_passes
from .device_tasks import device_tasks, reordered
from .graph_file import load_tasks, save_tasks, tasks_from_dict
from .greedy import raise_comms, sink_waits
from .picture import visualize_overlap
from .program_passes import PROGRAM_PASSES, ProgramReport, overlap_program
from .reorder_compute import decide_global_ordering_of_comms, reorder_compute_for_overlap
from .tasks import Estimator, Task, TaskKind, Tasks, check_tasks, given_duration
from .timeline import exposed_time, peak_memory, timeline

__all__ = [
    "DEFAULT_PASSES",
    "PASSES",
    "PROGRAM_PASSES",
    "Estimator",
    "PassReport",
    "ProgramReport",
    "Task",
    "TaskKind",
    "Tasks",
    "check_tasks",
    "decide_global_ordering_of_comms",
    "device_tasks",
    "exposed_time",
    "given_duration",
    "load_tasks",
    "overlap_program",
    "peak_memory",
    "raise_comms",
    "raise_comms_within_memory",
    "reorder_compute_for_overlap",
    "reordered",
    "run_passes",
    "save_tasks",
    "sink_waits",
    "sink_waits_within_memory",
    "tasks_from_dict",
    "timeline",
    "visualize_overlap",
]
