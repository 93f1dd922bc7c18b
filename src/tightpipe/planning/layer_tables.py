"""The tables ``[[layers]]`` of a model file, each of which gives `count` equal consecutive layers."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from ..core.errors import InputError
from ..core.instance_file import check_keys
from ..core.integers import check_int, is_list
from .layered_model import MOST_LAYERS, Layer, Model
from .units import check_ticks

_TIMES = ("forward", "backward", "weight")
_OPTIONAL = ("fused", "activation", "weight_activation", "input", "output", "parameters")
_UNNAMED = "layer"


def model_from_tables(tables: Any) -> Model:
    """Return the model of a list of tables, each of which gives `count` equal layers.

    Raises
    ------
    InputError
        If the tables do not describe layers; the message names key and value, e.g. ``layers[2].forward``.
    """
    if not is_list(tables) or not tables:
        raise InputError("must be at least one table [[layers]]", key="layers", value=tables)
    found: list[Layer] = []
    for index, table in enumerate(tables):
        where = f"layers[{index}]"
        check_keys(table, _TIMES, ("name", "kind", "count", *_OPTIONAL), where)
        count = check_int(f"{where}.count", table.get("count", 1), 1)
        if len(found) + count > MOST_LAYERS:
            rule = f"makes {len(found) + count} layers, a model has at most {MOST_LAYERS}"
            raise InputError(rule, key=f"{where}.count", value=count)
        found += [_layer(table, where)] * count
    return Model(tuple(found))


def _layer(table: dict[str, Any], where: str) -> Layer:
    name = table.get("name", _UNNAMED)
    if not isinstance(name, str):
        raise InputError("must be a text", key=f"{where}.name", value=name)
    times = {key: check_ticks(f"{where}.{key}", table[key]) for key in _TIMES}
    given = {key: table[key] for key in _OPTIONAL if key in table}
    if "fused" in table:
        check_ticks(f"{where}.fused", table["fused"])
    try:
        return Layer(name, **times, **given, kind=table.get("kind"))
    except InputError as error:
        raise InputError(error.rule, key=f"{where}.{error.key}", value=error.value) from None


def tables_of(model: Model) -> list[dict[str, Any]]:
    """Return the tables of a model; equal neighbours share a table, and entries of 0 or None are left out."""
    return [_table(layer, len(list(equal))) for layer, equal in groupby(model.layers)]


def _table(layer: Layer, count: int) -> dict[str, Any]:
    kind = {} if layer.kind is None else {"kind": layer.kind}
    counted = {"count": count} if count > 1 else {}
    times = {key: getattr(layer, key) for key in _TIMES}
    usual = {"input": None, "output": None, "fused": None}
    given = {key: getattr(layer, key) for key in _OPTIONAL if getattr(layer, key) != usual.get(key, 0)}
    return {"name": layer.name} | kind | counted | times | given
