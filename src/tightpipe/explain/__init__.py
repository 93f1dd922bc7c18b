"""An explanation of a schedule's cost: where devices idle, what they wait for, and what would help."""

from .critical import Leg, Link, Step, critical_path, legs
from .explanation import DeviceTime, Explanation, Relaxation, explain
from .idle import SENTENCES, Arrivals, Idle, Phase, Reason, arrivals

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
