"""The command ``methods``."""

from __future__ import annotations

from ..solving.methods import all_methods
from ..terminal.console import show_json, show_table
from .common import cli, json_option


@cli.command("methods")
@json_option
def _methods(as_json: bool) -> None:
    """List the methods with placement, memory and source.

    Memory is in activations of one stage; p is the number of devices, v the number of stages on each device,
    n the number of microbatches. Heuristics of installed packages stand at the end.
    """
    fields = ("name", "kind", "placements", "memory", "source")
    rows = [{field: getattr(method, field) for field in fields} for method in all_methods().values()]
    if as_json:
        show_json({"methods": rows})
        return
    show_table(fields, [
        (row["name"], row["kind"], " ".join(row["placements"]), row["memory"], row["source"]) for row in rows
    ])  # fmt: skip
