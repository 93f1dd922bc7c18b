"""Pipeline-parallel training schedules with proven optimality gaps."""

from importlib.metadata import version

from .errors import DeadlockError, InfeasibleError, InputError, NoScheduleError
from .instance import Costs, Instance, Memory, Objective
from .instance_file import load_instance, save_instance
from .operation import Operation, OpKind
from .placement import Placement
from .result import Proof, Result, Status
from .retime import retime
from .schedule import Order, Schedule
from .schedule_file import load_schedule, save_schedule
from .simulate import simulate
from .solve import methods, solve
from .validate import Violation, validate

__version__ = version("tightpipe")

__all__ = [
    "Costs",
    "DeadlockError",
    "InfeasibleError",
    "InputError",
    "Instance",
    "Memory",
    "NoScheduleError",
    "Objective",
    "OpKind",
    "Operation",
    "Order",
    "Placement",
    "Proof",
    "Result",
    "Schedule",
    "Status",
    "Violation",
    "load_instance",
    "load_schedule",
    "methods",
    "retime",
    "save_instance",
    "save_schedule",
    "simulate",
    "solve",
    "validate",
]
