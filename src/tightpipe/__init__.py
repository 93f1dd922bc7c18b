"""Pipeline-parallel training schedules with proven optimality gaps."""

from typing import TYPE_CHECKING, Any

from .certificates import Certificate, certify
from .core.errors import DeadlockError, InfeasibleError, InputError, NoScheduleError
from .core.instance import Costs, Instance, Memory, Objective
from .core.instance_file import load_instance, save_instance
from .core.operation import Operation, OpKind
from .core.placement import Placement
from .core.result import Bound, Proof, Result, Status
from .core.retime import retime
from .core.schedule import Order, Schedule
from .core.schedule_file import load_schedule, save_schedule
from .core.simulate import simulate
from .core.validate import Violation, validate
from .drawing import plot
from .planning import Plan, PlanningProblem, load_plan, load_problem, plan, save_plan
from .solving.bounds import bound
from .solving.methods import methods
from .solving.solve import solve

if TYPE_CHECKING:
    __version__: str

__all__ = [
    "Bound",
    "Certificate",
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
    "Plan",
    "PlanningProblem",
    "Proof",
    "Result",
    "Schedule",
    "Status",
    "Violation",
    "bound",
    "certify",
    "load_instance",
    "load_plan",
    "load_problem",
    "load_schedule",
    "methods",
    "plan",
    "plot",
    "retime",
    "save_instance",
    "save_plan",
    "save_schedule",
    "simulate",
    "solve",
    "validate",
]


def __getattr__(name: str) -> Any:
    """Return the version, looked up only on demand: that takes half as long as all the imports above."""
    if name == "__version__":
        from importlib.metadata import version

        return version("tightpipe")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
