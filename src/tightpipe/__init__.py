"""Pipeline-parallel training schedules with proven optimality gaps."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .base.errors import DeadlockError, InfeasibleError, InputError, NoScheduleError
from .model.costs import Costs, Memory, MicrobatchClass, MicrobatchSlice, Objective, Offload, Step
from .model.instance import Instance
from .model.instance_file import load_instance, load_law, load_lengths, save_instance, save_law
from .model.law import CostLaw, Law
from .model.operation import Operation, OpKind
from .model.placement import Placement
from .model.result import Bound, Proof, Result, Status
from .model.schedule import Order, Schedule
from .model.schedule_file import load_schedule, save_schedule
from .model.simulate import retime, simulate
from .model.validate import Violation, validate

if TYPE_CHECKING:
    from .certificates import Certificate, certify
    from .drawing import plot
    from .measuring import measure
    from .params.solve_params import SolveParams, load_params
    from .planning import Plan, PlanningProblem, load_plan, load_problem, plan, save_plan
    from .registry.methods import methods
    from .registry.solve import bound, solve
    from .steps import Assignment, StepPlanner

    __version__: str

_ON_DEMAND = {
    ".certificates": ("Certificate", "certify"),
    ".drawing": ("plot",),
    ".measuring": ("measure",),
    ".params.solve_params": ("SolveParams", "load_params"),
    ".planning": ("Plan", "PlanningProblem", "load_plan", "load_problem", "plan", "save_plan"),
    ".registry.methods": ("methods",),
    ".registry.solve": ("bound", "solve"),
    ".steps": ("Assignment", "StepPlanner"),
}
"""The public names that each of these modules provides, by the module's relative path.

A module is imported only when one of its names is first used, because most processes need few of them.
"""

__all__ = [
    "Assignment",
    "Bound",
    "Certificate",
    "CostLaw",
    "Costs",
    "DeadlockError",
    "InfeasibleError",
    "InputError",
    "Instance",
    "Law",
    "Memory",
    "MicrobatchClass",
    "MicrobatchSlice",
    "NoScheduleError",
    "Objective",
    "Offload",
    "OpKind",
    "Operation",
    "Order",
    "Placement",
    "Plan",
    "PlanningProblem",
    "Proof",
    "Result",
    "Schedule",
    "SolveParams",
    "Status",
    "Step",
    "StepPlanner",
    "Violation",
    "bound",
    "certify",
    "load_instance",
    "load_law",
    "load_lengths",
    "load_params",
    "load_plan",
    "load_problem",
    "load_schedule",
    "measure",
    "methods",
    "plan",
    "plot",
    "retime",
    "save_instance",
    "save_law",
    "save_plan",
    "save_schedule",
    "simulate",
    "solve",
    "validate",
]


def __getattr__(name: str) -> Any:
    """Return the object of a name in `_ON_DEMAND`, which becomes a global of this module, or the version."""
    if name == "__version__":
        from importlib.metadata import version

        found: Any = version("tightpipe")
    else:
        module = next((module for module, names in _ON_DEMAND.items() if name in names), None)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(module, __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
