"""One training step from the lengths of its microbatches: an order for every device, also of several replicas."""

from .replicas import Assignment
from .step_planner import StepPlanner

__all__ = ["Assignment", "StepPlanner"]
