"""An experiment is a declared grid of solves, as frozen data: problems, methods and other axes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from ..base.errors import InputError, about_file, check_int, printable
from ..base.files import check_keys, read_data
from ..model.instance import MOST_DEVICES, Instance
from ..model.instance_file import instance_from_dict, load_instance
from ..params.budget import Allowance
from ..params.solve_params import DEFAULTS, SolveParams
from ..settings import ExpertLayer, Setting, load_settings
from ..settings.expert_parallel import ticks_together
from .axes import UNCHANGED, Change
from .placing import Backwards, Copies

_GRACE = 60.0  # seconds that a solve gets beyond 1.2 times its time limit before it is killed


class FigureKind(StrEnum):
    """The kinds of figures that a study can have."""

    SETTINGS = "settings"  #: bubble rates of the methods on each problem
    MEMORY = "memory"  #: bubble rates against the memory limit
    FRONTIER = "frontier"  #: as `MEMORY`, per size of the problem, with the band in which the optimum lies
    COMM = "comm"  #: bubble rates against the communication time
    AVOIDED = "avoided"  #: shares of what greedy-v costs above the best bound that methods avoid
    UNEVEN = "uneven"  #: bubble rates for each way in which stages are unlike
    EQUAL_MEMORY = "equal-memory"  #: bubble rates against the memory limit over the peak memory of 1F1B
    DISCOUNT = "discount"  #: bubble rates against what a fused backward saves
    ANYTIME = "anytime"  #: gaps over time


@dataclass(frozen=True, slots=True)
class Problem:
    """The source of instances of a grid: a published setting, an instance file, or a model by layers."""

    name: str  #: the problem's name in the rows
    #: the instance, in the placement from which stages are joined and cut for others. A model by layers has
    #: one stage for each layer, in the placement ``linear``.
    native: Instance
    #: whether a method without a placement of its own gets the placement ``v`` or, if it does not schedule
    #: that, its first one. Otherwise it gets the placement of `native`.
    free: bool = False
    layered: bool = False  #: whether this is a model by layers, which an experiment places on devices


@dataclass(frozen=True, slots=True)
class Entry:
    """A method of a grid, and the placement, the backwards and the copies of its schedules."""

    method: str  #: its name, or ``module:function`` for a heuristic of your own
    placement: str | None = None  #: None for that of the problem
    chunks: int | None = None  #: stages per device; None for the placement's usual number
    backwards: Backwards = Backwards.ANY  #: whether all are fused or split, or each as the method likes
    copies: Copies = Copies.ANY  #: whether activations may leave where the instance lets them, or none
    #: under which tables and figures show it, made of the above if it is empty. Of several entries with the
    #: same name, they show the cheapest schedule.
    name: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            where = f" on {self.placement}" if self.placement else ""
            chunks = f" x {self.chunks}" if self.chunks else ""
            how = "" if self.backwards is Backwards.ANY else f", only {self.backwards}"
            how += "" if self.copies is Copies.ANY else ", no copies"
            object.__setattr__(self, "name", f"{self.method}{where}{chunks}{how}")


@dataclass(frozen=True, slots=True)
class Experiment:
    """The axes of a grid, and the conditions of all its solves.

    Every problem is solved under every combination of changes that has one `Change` from each of the axes
    `devices` to `objectives`. The axes `methods`, `costs`, `warm_starts`, `time_limits` and `seeds` say how.
    """

    problems: tuple[Problem, ...]
    methods: tuple[Entry, ...]
    time_limits: tuple[float, ...] = (60.0,)  #: in seconds
    #: seconds after which a solve is killed; 0 for 1.2 times the longest time limit, and a minute
    hard_limit: float = 0.0
    devices: tuple[Change, ...] = (UNCHANGED,)
    microbatches: tuple[Change, ...] = (UNCHANGED,)
    uneven: tuple[Change, ...] = (replace(UNCHANGED, label=""),)
    comm: tuple[Change, ...] = (UNCHANGED,)
    discount: tuple[Change, ...] = (UNCHANGED,)
    offload: tuple[Change, ...] = (UNCHANGED,)
    memory: tuple[Change, ...] = (UNCHANGED,)
    objectives: tuple[Change, ...] = (UNCHANGED,)
    #: the costs that the method sees: ``true``, or ``median`` for those of `settings.with_median_costs`
    costs: tuple[str, ...] = ("true",)
    warm_starts: tuple[str, ...] = ("best",)  #: ``best``, ``none`` or the name of a heuristic
    seeds: tuple[int, ...] = (0,)
    threads: int = 1  #: of each solve
    #: GiB of memory at which a solve is killed; None for a share of the machine's memory, see `Limits`
    memory_cap: float | None = None
    #: GB of memory at which CP-SAT and MILP end with the best schedule so far; None for no cap
    max_memory: float | None = None
    params: SolveParams = DEFAULTS  #: the numbers that tune the searches of all solves
    #: whether to keep both solves of an instance whose median costs are its true costs, so that every problem
    #: has the same rows; False keeps only the one with the true costs
    keep_equal_costs: bool = False
    figure: FigureKind | None = None  #: None for no figure
    baseline: str | None = None  #: the method against which the page measures the others; None for none
    slurm: Mapping[str, Any] = field(default_factory=dict)  #: options of `dask_jobqueue.SLURMCluster`

    def __post_init__(self) -> None:
        if not self.hard_limit:
            object.__setattr__(self, "hard_limit", usual_hard_limit(max(self.time_limits)))


def conditions(allowance: Allowance) -> dict[str, Any]:
    """Return the arguments of `Experiment` with which each of its solves gets this allowance."""
    limit = float(allowance.time_limit or 0.0)  # keys of solves tell 60 from 60.0
    return {
        "time_limits": (limit,),
        "seeds": (allowance.seed,),
        "threads": allowance.threads,
        "max_memory": allowance.max_memory,
        "params": allowance.params,
    }


def usual_hard_limit(time_limit: float) -> float:
    """Return the seconds after which a solve with this time limit, in seconds, is killed."""
    return time_limit * 1.2 + _GRACE


def choose_names(text: str, known: Collection[str], **groups: Collection[str]) -> list[str]:
    """Return the names that a comma-separated list, ``all`` or the name of a group stands for."""
    groups["all"] = known
    names = list(groups.get(text, ())) or [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            rule = f"must be {', '.join(groups)}, or of {', '.join(known)}"
            raise InputError(rule, key="settings", value=name)
    return names


def choose_settings(text: str) -> list[Setting]:
    """Return the settings that ``active``, ``all`` or a comma-separated list of names stand for."""
    known = load_settings()
    active = [name for name, setting in known.items() if setting.active]
    return [known[name] for name in choose_names(text, known, active=active)]


def setting_problem(setting: Setting) -> Problem:
    """Return the problem of a published setting, which does not prescribe a placement."""
    return Problem(setting.name, setting.instance(), free=True)


def file_problem(path: str | Path, name: str) -> Problem:
    """Return the problem of an instance file, which has the one placement that the file states.

    What cannot be shown of the name is escaped, because the name goes into tables and databases.
    """
    return Problem(printable(name), load_instance(path))


def layers_problem(path: str | Path, name: str) -> Problem:
    """Return the problem of a file with costs per layer, which is placed on any devices that divide it.

    The file has the keys of an instance file, with one number per layer in place of one per stage, and
    without `devices`, `placement` and `chunks`. Where all layers are alike, `layers` says how many there are.
    """
    with about_file(path):
        return Problem(printable(name), _by_layers(read_data(path)), free=True, layered=True)


def _by_layers(data: Any) -> Instance:
    if isinstance(data, dict) and "experts" in data:
        data = _with_experts(data)
    check_keys(data, ("microbatches", *_TIMES), ("layers", *_LAYERED))
    lists = [data[key] for key in _TIMES if isinstance(data[key], list)]
    layers = check_int("layers", data.get("layers", len(lists[0]) if lists else None), 1, MOST_DEVICES)
    memory = data.get("memory")
    limit = memory.get("limit") if isinstance(memory, dict) else None
    for key, value in (("comm", data.get("comm")), ("memory.limit", limit)):
        if isinstance(value, list):
            raise InputError("must be one number: the experiment names the devices", key=key, value=value)
    content = {key: value for key, value in data.items() if key != "layers"}
    return instance_from_dict({**content, "devices": layers, "placement": "linear"})


def _with_experts(data: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a file with the times of its layers, of which it gives the parts."""
    check_keys(data, ("microbatches", "layers", "experts"), tuple(k for k in _LAYERED if k != "pairs"))
    layer = ExpertLayer.from_tables(data["experts"], "experts")
    layers = check_int("layers", data["layers"], 1, MOST_DEVICES)
    rest = {key: value for key, value in data.items() if key != "experts"}
    pairs = [[ticks_together(*layer.chains())] * layers] * layers
    return {**rest, **{key: getattr(layer, key).ticks for key in _TIMES}, "pairs": pairs}


_TIMES = ("forward", "backward", "weight")
_LAYERED = ("comm", "memory", "objective", "fused", "pairs", "link_occupancy", "iterations", "flush", "step")
