"""Pipeline-parallel training schedules with proven optimality gaps."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .core.errors import DeadlockError, InfeasibleError, InputError, NoScheduleError
from .core.instance import Costs, Instance, Memory, Objective, Step
from .core.instance_file import load_instance, save_instance
from .core.operation import Operation, OpKind
from .core.placement import Placement
from .core.result import Bound, Proof, Result, Status
from .core.retime import retime
from .core.schedule import Order, Schedule
from .core.schedule_file import load_schedule, save_schedule
from .core.simulate import simulate
from .core.validate import Violation, validate

if TYPE_CHECKING:
    from .certificates import Certificate, certify
    from .core.params.params_file import load_params
    from .core.params.solve_params import SolveParams
    from .drawing import plot
    from .measuring import measure
    from .planning import Plan, PlanningProblem, load_plan, load_problem, plan, save_plan
    from .solving.bounds import bound
    from .solving.methods import methods
    from .solving.solve import solve

    __version__: str

_ON_DEMAND = {
    ".certificates": ("Certificate", "certify"),
    ".core.params.params_file": ("load_params",),
    ".core.params.solve_params": ("SolveParams",),
    ".drawing": ("plot",),
    ".measuring": ("measure",),
    ".planning": ("Plan", "PlanningProblem", "load_plan", "load_problem", "plan", "save_plan"),
    ".solving.bounds": ("bound",),
    ".solving.methods": ("methods",),
    ".solving.solve": ("solve",),
}
"""The public names that each of these modules provides, by the module's relative path.

A module is imported only when one of its names is first used, because most processes need few of them.
"""

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
    "SolveParams",
    "Status",
    "Step",
    "Violation",
    "bound",
    "certify",
    "load_instance",
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
    "save_plan",
    "save_schedule",
    "simulate",
    "solve",
    "validate",
]


def __getattr__(name: str) -> Any:
    """Return the object behind a public name in `_ON_DEMAND`, or the package's version for `__version__`.

    The object is stored as a global of this module, so that Python finds it without this function next time.

    Raises
    ------
    AttributeError
        If the package has no such name.
    """
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
