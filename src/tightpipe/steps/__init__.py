"""The microbatches of one training step get an order on every device, also of several replicas."""

from .replicas import Assignment
from .step_planner import StepPlanner

__all__ = ["Assignment", "StepPlanner"]
