"""The stages of a transformer, or its single layers, are profiled with PyTorch, also at several lengths.

On a machine on which only PyTorch is installed, run `stage_costs.py`, and read its table with `read_table`.
The docstring of that script describes the measurements.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from ..base.errors import InputError, check_choice, check_int
from ..model.costs import Objective, objective_of
from ..model.law import COEFFICIENTS, CostLaw, Law, Laws, Microbatch, fit
from ..model.placement import Placement
from .profile_table import Profile, read_table

DEVICES = ("cpu", "cuda")
"""The kinds of device on which the processes of a run or a profile can compute."""
DTYPES = ("float32", "bfloat16", "float16")
MOST_STEPS = 20
"""Default of `repeats`: the number of measured steps after which a measurement ends in any case."""
TOLERANCE = 0.02
"""Default precision: half the width of a median time's 95 % confidence interval, as a share of the median."""
_SCRIPT = Path(__file__).with_name("stage_costs.py")
_WARNING = "warning: "


@dataclass(frozen=True, slots=True)
class TransformerShape:
    """The shape of the transformer that is profiled."""

    layers: int  #: number of layers of the whole model, spread over the stages as evenly as possible
    hidden: int  #: hidden size, a multiple of `heads`
    heads: int  #: number of attention heads
    sequence: int  #: tokens per row
    microbatch: int = 1  #: rows per microbatch
    dtype: str = "float32"  #: type of all numbers, one of `DTYPES`
    #: sizes of the feed-forward networks: one for all layers, or one for each layer; empty means four times
    #: the hidden size
    ffn: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "sequence", "microbatch"):
            check_int(name, getattr(self, name), 1)
        if self.hidden % self.heads:
            raise InputError(f"must be a multiple of heads = {self.heads}", key="hidden", value=self.hidden)
        check_choice("dtype", self.dtype, *DTYPES)
        for size in self.ffn:
            check_int("ffn", size, 1)
        if len(self.ffn) not in (0, 1, self.layers):
            rule = f"must be one size, or one for each of the {self.layers} layers"
            raise InputError(rule, key="ffn", value=list(self.ffn))


def profile_stages(
    shape: TransformerShape,
    stages: int,
    *,
    route: Sequence[int] | None = None,
    device: str | None = None,
    repeats: int = MOST_STEPS,
    tolerance: float = TOLERANCE,
) -> Profile:
    """Measure the durations of F, B, W, BW and communication, and the memory, of a transformer's stages.

    The stages are trained as in a run, with a process for each device. Half of the backwards are fused, so
    that one profile serves schedules that fuse all, some or none of them. Stage 0 has no B: PyTorch runs its
    whole backward in W.

    Parameters
    ----------
    shape
        Shape of the transformer.
    stages
        Number of stages, at most `shape.layers`.
    route
        Device of each stage. None lets the stages alternate between two devices, or puts all of them on one
        device if GPUs are used and there is only one.
    device
        `cpu` or `cuda`; None takes GPUs if there are any.
    repeats
        Largest number of measured training steps, at least 1. The measurement ends earlier once all medians
        are known to `tolerance`.
    tolerance
        Precision at which the median time of an operation counts as known, above 0: half the width of its
        95 % confidence interval, as a share of the median, or of the mean time of all operations if the mean
        is longer. A warning of the profile names the operations whose median is not known.

    Returns
    -------
    Profile
        The costs of the stages, with times in ticks of a microsecond and memory in bytes.

    Raises
    ------
    InputError
        If PyTorch is missing, a value is out of its range, or the measurement fails; the message has the last
        line of its output.
    """
    check_int("stages", stages, 1)
    if shape.layers < stages:
        raise InputError(f"must be at least the number of stages, {stages}", key="layers", value=shape.layers)
    options = {"stages": [stages], "route": list(route or [])}
    said, warnings = _run_script(shape, device, options | _effort(repeats, tolerance))
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.csv"
        table.write_text(said)
        profile = read_table(table)
    return replace(profile, warnings=(*profile.warnings, *warnings))


class MeasuredLayers(NamedTuple):
    """The measured layers of a transformer."""

    layers: list[dict[str, Any]]  #: the tables ``[[layers]]`` of a model file, in ticks of a microsecond
    comm: int  #: duration of a message in ticks; 0 with one device
    warnings: tuple[str, ...]  #: names of operations whose median time is not known to the tolerance


def profile_layers(
    shape: TransformerShape,
    vocabulary: int,
    *,
    devices: int | None = None,
    device: str | None = None,
    repeats: int = MOST_STEPS,
    tolerance: float = TOLERANCE,
) -> MeasuredLayers:
    """Measure embedding, layers and head of a transformer, each as a stage of its own.

    Parameters
    ----------
    shape, device, repeats, tolerance
        As for `profile_stages`.
    vocabulary
        Number of tokens that embedding and head know.
    devices
        Number of processes that compute at once. None means two, or one if GPUs are used and there is only
        one.

    Raises
    ------
    InputError
        As in `profile_stages`.
    """
    check_int("vocabulary", vocabulary, 1)
    options = {"vocabulary": [vocabulary], "devices": [] if devices is None else [devices]}
    said, warnings = _run_script(shape, device, options | _effort(repeats, tolerance))
    measured = json.loads(said)
    return MeasuredLayers(measured["layers"], measured["comm"], warnings)


def _effort(repeats: int, tolerance: float) -> dict[str, list[float]]:
    check_int("repeats", repeats, 1)
    if not tolerance > 0:
        raise InputError("must be above 0", key="tolerance", value=tolerance)
    return {"repeats": [repeats], "tolerance": [tolerance]}


def _run_script(
    shape: TransformerShape, device: str | None, options: dict[str, list[Any]]
) -> tuple[str, tuple[str, ...]]:
    """Run `stage_costs.py`, and return its standard output, and the warnings from its standard error."""
    require_torch("profiling")
    if device is not None:
        check_choice("device", device, *DEVICES)
    numbers = {name: [getattr(shape, name)] for name in shape.__slots__ if name != "ffn"}
    given = numbers | options | {"ffn": list(shape.ffn), "device": [] if device is None else [device]}
    words = [word for name, values in given.items() if values for word in (f"--{name}", *map(str, values))]
    done = subprocess.run([sys.executable, "-P", str(_SCRIPT), *words], capture_output=True, text=True)
    lines = done.stderr.strip().splitlines() or ["nothing"]
    if done.returncode:
        raise InputError(f"the measurement failed and said: {lines[-1].rpartition('error: ')[2]}")
    return done.stdout, tuple(line[len(_WARNING) :] for line in lines if line.startswith(_WARNING))


_FEWEST_LENGTHS = 3  # as many as a law has coefficients
_LINEAR = COEFFICIENTS[:2]


class FittedLaw(NamedTuple):
    """A law, and the largest relative error that it leaves at what it was fitted to."""

    law: CostLaw
    error: float


def check_lengths(tokens: Collection[int]) -> None:
    """Raise an InputError if profiles at these numbers of tokens are too few to fit a law."""
    if len(set(tokens)) < _FEWEST_LENGTHS:
        rule = f"must be {_FEWEST_LENGTHS} or more different numbers of tokens, to fit a law"
        raise InputError(rule, key="lengths", value=list(tokens))


def fit_law(
    profiles: Mapping[Microbatch, Profile],
    placement: Placement,
    *,
    limit: int | Sequence[int] | None = None,
    objective: Objective | str = Objective.DEVICE_SPAN,
) -> FittedLaw:
    """Fit the laws of the costs of all stages to profiles of microbatches of several lengths.

    Times are fitted to a constant, the tokens and the squares of the lengths, and memory and messages to a
    constant and the tokens (`tightpipe.model.law.fit`). Messages of 0 ticks count as 1 if others take longer.

    Parameters
    ----------
    profiles
        The profiles by the lengths of the microbatch's sequences, for three or more numbers of tokens.
    placement
        Which device runs which stage.
    limit
        Memory limit in the unit of the profiles, a number or one number per device; None takes that of the
        profiles.
    objective
        The objective of the instances.

    Raises
    ------
    InputError
        If there are fewer than three lengths, if a stage has an operation at some lengths only, or if the
        profiles do not fit the placement.
    """
    lengths, known = list(profiles), list(profiles.values())
    totals = [sum(one) for one in lengths]
    check_lengths(totals)
    stages = [len(profile.forward) for profile in known]
    if len(set(stages)) > 1:
        raise InputError("must be as many at each length", key="stages", value=stages)
    errors: list[float] = []

    def laws(
        name: str, values: Callable[[Profile], Sequence[int]], powers: tuple[str, ...] = COEFFICIENTS
    ) -> Laws:
        found = []
        for stage, samples in enumerate(zip(*map(values, known), strict=True)):
            if any(samples) and not all(samples):
                rule = f"must be above 0 at all lengths or 0 at all, at stage {stage}"
                raise InputError(rule, key=name, value=samples)
            law, error = fit(list(zip(lengths, samples, strict=True)), powers)
            errors.append(error)
            found.append(law)
        return tuple(found)

    memory = None
    if all(profile.memory is not None for profile in known):
        held = laws("memory.forward", lambda one: one.memory[0] if one.memory else (), _LINEAR)
        needed = laws("memory.weight", lambda one: [-w for w in one.memory[2]] if one.memory else (), _LINEAR)
        trained = [b > 0 or w > 0 for b, w in zip(known[0].backward, known[0].weight, strict=True)]
        freed = tuple(w + h * -1 if t else Law() for h, w, t in zip(held, needed, trained, strict=True))
        memory = held, freed, tuple(w * -1 for w in needed)
    limit = known[0].limits if limit is None else limit
    if limit is not None and memory is None:
        raise InputError("the profile has no memory", key="limit", value=limit)
    fused = laws("fused", lambda one: one.fused or ()) if all(one.fused for one in known) else None
    # a message can be too short to be seen beside the noise at one length only: there it takes a tick
    shortest = min(1, max(one.comm for one in known))
    (comm,) = laws("comm", lambda one: (max(one.comm, shortest),), _LINEAR)
    law = CostLaw(
        placement,
        laws("forward", lambda one: one.forward),
        laws("backward", lambda one: one.backward),
        laws("weight", lambda one: one.weight),
        fused=fused,
        comm=comm,
        memory=memory,
        limit=limit if limit is None or isinstance(limit, int) else tuple(limit),
        objective=objective_of(objective),
    )
    return FittedLaw(law, max(errors))


def require_torch(purpose: str) -> None:
    """Raise an InputError, which says that `purpose` needs PyTorch, unless that is installed."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:  # a folder that is only named torch has no origin
        raise InputError(
            f"{purpose} needs PyTorch 2.8 or later, which is not installed: pip install 'tightpipe[torch]', "
            "or pip install torch==2.13.0 for the version that is tested"
        )


def require_gpus(devices: int) -> None:
    """Raise an InputError, which says how many GPUs PyTorch finds, if there are fewer than `devices`."""
    from .torch_pipeline import too_few_gpus  # only here, as PyTorch takes seconds

    if problem := too_few_gpus("cuda", devices):
        raise InputError(problem)


def require_pairs() -> None:
    """Raise an InputError if this version of PyTorch cannot run an F and a backward as a pair."""
    found = version("torch")
    if tuple(map(int, found.split(".")[:2])) < (2, 9):
        raise InputError("two operations that run as a pair need 2.9 or later", key="PyTorch", value=found)
