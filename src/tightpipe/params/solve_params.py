"""All parameters of a solve, one field for each search, and the files that hold them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from textwrap import wrap
from typing import Any

from ..base.errors import InputError, about_entry, about_file, named
from ..base.files import read_data
from . import proof, search
from .parameters import Parameters, Value, as_in_a_file, documented, summary_of


@dataclass(frozen=True, slots=True)
class SolveParams:
    """The numbers that tune the searches of a solve; the defaults suit most instances.

    - `best`: which searches the method `best` runs, and for how long.
    - `sides`: how the search for schedules and the proofs share the threads.
    - `rules`, `anneal`, `fold`, `neighbourhoods`: the phases of the method `improve`.
    - `beams`: beam searches for schedules.
    - `blocks`: the method `block`.
    - `starts`: the time for the heuristics from which searches start.
    - `list`, `due_date`, `v_blocks`, `interleaved`, `modulo`: these heuristics.
    - `bounds`, `prefixes`, `windows`: the searches for lower bounds, and the constraint propagation
      that they rest on.
    - `cpsat`, `targets`, `milp`: the exact solvers.
    - `plan`: the search for plans.
    """

    best: search.BestParams = field(default_factory=search.BestParams)
    sides: search.SideParams = field(default_factory=search.SideParams)
    rules: search.RuleParams = field(default_factory=search.RuleParams)
    anneal: search.AnnealParams = field(default_factory=search.AnnealParams)
    fold: search.FoldParams = field(default_factory=search.FoldParams)
    neighbourhoods: search.NeighbourhoodParams = field(default_factory=search.NeighbourhoodParams)
    beams: search.BeamParams = field(default_factory=search.BeamParams)
    blocks: search.BlockParams = field(default_factory=search.BlockParams)
    starts: search.StartParams = field(default_factory=search.StartParams)
    list: search.ListParams = field(default_factory=search.ListParams)
    due_date: search.DueDateParams = field(default_factory=search.DueDateParams)
    v_blocks: search.VBlockParams = field(default_factory=search.VBlockParams)
    interleaved: search.InterleavedParams = field(default_factory=search.InterleavedParams)
    modulo: search.ModuloParams = field(default_factory=search.ModuloParams)
    bounds: proof.BoundParams = field(default_factory=proof.BoundParams)
    prefixes: proof.PrefixParams = field(default_factory=proof.PrefixParams)
    windows: proof.WindowParams = field(default_factory=proof.WindowParams)
    cpsat: proof.CpsatParams = field(default_factory=proof.CpsatParams)
    targets: proof.TargetParams = field(default_factory=proof.TargetParams)
    milp: proof.MilpParams = field(default_factory=proof.MilpParams)
    plan: proof.PlanParams = field(default_factory=proof.PlanParams)

    def searches(self) -> Iterator[tuple[str, Parameters]]:
        """Yield the name and the parameters of each search."""
        for each in fields(self):
            yield each.name, getattr(self, each.name)

    def changed(self) -> dict[str, Any]:
        """Return what is not the default, by keys such as ``anneal.reach``, with the values as in a file."""
        return {
            f"{name}.{each.name}": as_in_a_file(value)
            for name, parameters in self.searches()
            for each in fields(parameters)
            if (value := getattr(parameters, each.name)) != each.default
        }

    def record(self) -> dict[str, Any]:
        """Return the entry `params` of a file or of JSON, with what is changed; nothing if nothing is."""
        return {"params": changed} if (changed := self.changed()) else {}

    def changed_text(self) -> str:
        """Return what is changed as one line, e.g. ``anneal.reach = 4``; empty if nothing is."""
        return ", ".join(f"{key} = {value}" for key, value in self.changed().items())


DEFAULTS = SolveParams()
"""The parameters of a solve that is given none."""


def params_from_dict(data: Any) -> SolveParams:
    """Return the defaults with the changes that `data` has: for each search, a table of some of its fields.

    A key such as ``anneal.reach`` is accepted in place of a table, as `SolveParams.changed` gives them.

    Raises
    ------
    InputError
        If there is no such search or field, or if a value is out of range.
    """
    if not isinstance(data, dict):
        raise InputError("must be a table of parameters", value=data)
    changed: dict[str, Any] = {
        name: _changed(name, getattr(DEFAULTS, name), table) for name, table in _tables(data).items()
    }
    return replace(DEFAULTS, **changed)


def _tables(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    known = dict(DEFAULTS.searches())
    tables: dict[str, dict[str, Any]] = {}
    for key, value in data.items():
        name, dot, entry = str(key).partition(".")
        if name not in known:
            raise InputError(f"no search has this name; known are {', '.join(known)}", key=named(key))
        if not dot and not isinstance(value, dict):
            raise InputError("must be a table of the parameters of this search", key=named(key), value=value)
        tables[name] = tables.get(name, {}) | ({entry: value} if dot else value)
    return tables


def _changed(name: str, parameters: Parameters, table: dict[str, Any]) -> Parameters:
    known = [each.name for each in fields(parameters)]
    for key, value in table.items():
        if key not in known:
            rule = f"unknown parameter; known are {', '.join(known)}"
            raise InputError(rule, key=f"{name}.{named(key)}", value=value)
    with about_entry(name):
        return replace(parameters, **table)


_WIDTH = 100


def load_params(path: str | Path) -> SolveParams:
    """Return the parameters of a file; those that it does not name have their defaults.

    The suffix ``.toml`` means TOML, everything else JSON; ``-`` stands for standard input.

    Raises
    ------
    InputError
        If the file cannot be read, names an unknown parameter or has a value out of range.
    """
    with about_file(path):
        return params_from_dict(read_data(path))


def params_to_toml(params: SolveParams = DEFAULTS) -> str:
    """Return all parameters as a TOML file, each below a comment that says what it is and may be."""
    return "\n".join(_lines(params))


def _lines(params: SolveParams) -> Iterator[str]:
    for name, parameters in params.searches():
        texts = documented(type(parameters))
        yield from _comment(summary_of(type(parameters)))
        yield f"[{name}]"
        for each in fields(parameters):
            yield ""
            yield from _comment(f"{texts.get(each.name, '')} ({each.metadata['range']})".strip())
            yield f"{each.name} = {_text(getattr(parameters, each.name))}"
        yield ""


def _comment(text: str) -> list[str]:
    return wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ")


def _text(value: Value) -> str:
    if not isinstance(value, tuple):
        return repr(value)
    return f"[{', '.join(map(_text, value))}]"
