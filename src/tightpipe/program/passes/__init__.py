"""Passes that reorder task lists and programs so that communication overlaps with computation.

Here, a task is a computation, the start of a communication, or a wait for its end, on one device.
"""

from .program_passes import PROGRAM_PASSES, ProgramReport, device_tasks, overlap_program, reordered
from .reordering import (
    DEFAULT_PASSES,
    PASSES,
    PassReport,
    decide_global_ordering_of_comms,
    raise_comms,
    raise_comms_within_memory,
    reorder_compute_for_overlap,
    run_passes,
    sink_waits,
    sink_waits_within_memory,
)
from .tasks import (
    Estimator,
    Task,
    TaskKind,
    Tasks,
    check_tasks,
    exposed_time,
    given_duration,
    load_tasks,
    peak_memory,
    save_tasks,
    tasks_from_dict,
    timeline,
    visualize_overlap,
)

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
