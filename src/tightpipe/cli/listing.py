"""The command ``methods``."""

from __future__ import annotations

from dataclasses import asdict

import click

from ..core.params.params_file import params_to_toml
from ..core.params.solve_params import DEFAULTS
from ..solving.methods import all_methods
from ..terminal.console import show_json, show_table
from .common import cli, json_option


@cli.command("methods")
@click.option("--params", is_flag=True, help="Show the parameters of the searches instead, as TOML.")
@json_option
def _methods(params: bool, as_json: bool) -> None:
    """List the methods with placement, memory and source.

    Memory is in activations of one stage; p is the number of devices, v the number of stages on each device,
    n the number of microbatches. Heuristics of installed packages stand at the end.

    With --params, the parameters of all searches are shown with their defaults and what each of them means.
    The option --params of other commands takes such a file; entries that are left out keep their defaults.
    """
    if params:
        _show_params(as_json)
        return
    fields = ("name", "kind", "placements", "memory", "source")
    rows = [{field: getattr(method, field) for field in fields} for method in all_methods().values()]
    if as_json:
        show_json({"methods": rows})
        return
    show_table(fields, [
        (row["name"], row["kind"], " ".join(row["placements"]), row["memory"], row["source"]) for row in rows
    ])  # fmt: skip


def _show_params(as_json: bool) -> None:
    if as_json:
        show_json({name: asdict(parameters) for name, parameters in DEFAULTS.searches()})
    else:
        print(params_to_toml(), end="")
