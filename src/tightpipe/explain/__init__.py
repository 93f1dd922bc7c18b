"""An explanation of a schedule's cost: where devices idle, what they wait for, and what would help."""

from .arrivals import Arrivals, arrivals
from .critical import Link, Step, critical_path
from .explanation import DeviceTime, Explanation, explain
from .idle import SENTENCES, Idle, Reason
from .path_legs import Leg, legs
from .phases import Phase
from .relax import Relaxation

__all__ = [
    "SENTENCES",
    "Arrivals",
    "DeviceTime",
    "Explanation",
    "Idle",
    "Leg",
    "Link",
    "Phase",
    "Reason",
    "Relaxation",
    "Step",
    "arrivals",
    "critical_path",
    "explain",
    "legs",
]
