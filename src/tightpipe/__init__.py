"""Pipeline-parallel training schedules with proven optimality gaps."""

from typing import TYPE_CHECKING, Any

from .drawing import plot
from .errors import DeadlockError, InfeasibleError, InputError, NoScheduleError
from .instance import Costs, Instance, Memory, Objective
from .instance_file import load_instance, save_instance
from .operation import Operation, OpKind
from .placement import Placement
from .result import Bound, Proof, Result, Status
from .retime import retime
from .schedule import Order, Schedule
from .schedule_file import load_schedule, save_schedule
from .simulate import simulate
from .solve import bound, methods, solve
from .validate import Violation, validate

if TYPE_CHECKING:
    __version__: str

__all__ = [
    "Bound",
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
    "bound",
    "load_instance",
    "load_schedule",
    "methods",
    "plot",
    "retime",
    "save_instance",
    "save_schedule",
    "simulate",
    "solve",
    "validate",
]


def __getattr__(name: str) -> Any:
    """Look up the version when it is asked for: that takes as long as half of all else here."""
    if name == "__version__":
        from importlib.metadata import version

        return version("tightpipe")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
