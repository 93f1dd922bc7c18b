"""Plans for the layers of a model on a cluster: partition, placement, recomputation, schedule and a bound."""

from .candidate import Candidate
from .cluster import Cluster
from .layered_model import Layer, Model, Recomputation
from .many_steps import StepsPlan, plan_steps
from .plan_file import load_plan, plan_to_dict, save_plan
from .planner import plan
from .problem import Batch, PlanningProblem, SearchSpace
from .problem_file import load_problem, problem_from_dict, problem_to_dict
from .result import Plan
from .runtimes import split_of

__all__ = [
    "Batch",
    "Candidate",
    "Cluster",
    "Layer",
    "Model",
    "Plan",
    "PlanningProblem",
    "Recomputation",
    "SearchSpace",
    "StepsPlan",
    "load_plan",
    "load_problem",
    "plan",
    "plan_steps",
    "plan_to_dict",
    "problem_from_dict",
    "problem_to_dict",
    "save_plan",
    "split_of",
]
