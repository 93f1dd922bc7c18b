"""With ``--robust``, the command ``solve`` searches for a schedule whose cost under noise is small."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ..core.engine_version import engine_version
from ..core.errors import InputError
from ..core.instance import Instance
from ..core.interruption import exit_status, held_back
from ..core.params.solve_params import SolveParams
from ..core.schedule_file import save_schedule
from ..noise import parse_noises
from ..terminal.console import show_json, show_pairs, show_table
from ..terminal.progress_bar import progress_bar
from .common import summary_beside

if TYPE_CHECKING:
    from ..solving.robust import Judged, RobustResult

_FIGURES = ("mean", "deviation", "p95", "worst")


@dataclass(frozen=True, slots=True)
class RobustOptions:
    """Options of a robust solve, named as in `solve_robust`; `noise` has the models of noise as texts."""

    measure: str
    noise: tuple[str, ...]
    samples: int
    time_limit: float
    workers: int | None
    seed: int
    warm_start: Any
    params: SolveParams


def refuse_contradictions(context: click.Context, robust: bool) -> None:
    """Raise an InputError if the options of ``solve`` contradict each other.

    Some options do not go with ``--robust``, and others go only with it. `robust` says whether it is given.
    """
    given = {
        name for name in context.params if context.get_parameter_source(name) is not ParameterSource.DEFAULT
    }
    others = ("backend", "effort", "certificate", "max_memory") if robust else ("noise", "samples")
    for name in others:
        if name in given:
            key = f"--{name.replace('_', '-')}"
            raise InputError(f"goes {'without' if robust else 'with'} --robust", key=key)
    if robust and context.params["method"] != "improve":
        raise InputError("goes with --method improve", key="--robust", value=context.params["robust"])


def solve_robustly(instance: Instance, options: RobustOptions, output: str | None, as_json: bool) -> int:
    """Search for a robust schedule, print its cost under noise, and return the exit status.

    The schedule is written to the file `output`, unless `output` is None. If `as_json`, one JSON object is
    printed in place of a table.
    """
    from ..solving.robust import solve_robust  # loads solvers that other solves do not need

    names = ("samples", "time_limit", "workers", "seed", "warm_start", "params")
    chosen = {name: getattr(options, name) for name in names}
    models = parse_noises(options.noise)
    with progress_bar(1, options.time_limit) as bar:
        watch = bar.begin("improve")
        result = solve_robust(instance, options.measure, models, progress=watch, **chosen)
        if output is not None:
            with held_back():
                save_schedule(
                    result.schedule, output, method="improve", bound=result.bound, params=options.params
                )
    with summary_beside(output):
        if as_json:
            show_json({**_data(result, options), "engine": engine_version(), "output": output})
        else:
            _show(result, options, output)
    return exit_status(result.reason) if result.reason else 0


def _data(result: RobustResult, options: RobustOptions) -> dict[str, Any]:
    judged = {
        name: {"cost": one.cost, "searched": asdict(one.searched), "fresh": asdict(one.fresh)}
        for name, one in (("robust", result.robust), ("plain", result.plain))
    }
    asked = {"measure": str(result.measure), "noise": list(options.noise), "samples": result.samples}
    return {
        **asked,
        **options.params.record(),
        **judged,
        "bound": result.bound,
        "seconds": round(result.seconds, 3),
        "reason": result.reason,
    }


def _show(result: RobustResult, options: RobustOptions, output: str | None) -> None:
    asked = {"method": "improve", "robust": f"{result.measure} under {' '.join(options.noise)}"}
    rest = {
        "bound": result.bound,
        "seconds": f"{result.seconds:.3f}",
        "reason": result.reason,
        "output": output,
    }
    show_pairs({**asked, **rest})
    print()
    rows = [*_rows("robust", result.robust, result.samples), *_rows("plain", result.plain, result.samples)]
    show_table(["schedule", "cost", "samples", *_FIGURES], rows)


def _rows(name: str, judged: Judged, samples: int) -> list[list[Any]]:
    lines = ((f"{samples} searched", judged.searched), ("1000 fresh", judged.fresh))
    return [
        [name, judged.cost, label, *(f"{getattr(figures, key):.1f}" for key in _FIGURES)]
        for label, figures in lines
    ]
