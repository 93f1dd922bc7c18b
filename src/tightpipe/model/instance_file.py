"""Instances are read from JSON or TOML files and written as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..base.data_files import check_keys, check_kind, read_data
from ..base.errors import InputError
from ..base.files import write_text
from .costs import Memory, MicrobatchClass, MicrobatchSlice, Offload, Part, Step, sums
from .instance import Instance
from .law_file import batch_from_dict, is_law

_REQUIRED = ("devices", "forward", "backward", "weight")
_OPTIONAL = (
    *("microbatches", "placement", "chunks", "comm", "memory", "objective"),
    *("fused", "overlapped", "pairs", "link_occupancy", "iterations", "flush", "step", "classes", "slices"),
    "offload",
)
_MEMORY = ("forward", "backward", "weight", "limit")
_STEP = ("ready", "reduce", "optimizer")
_OFFLOAD = ("memory", "out", "back")
_PART = ("forward", "backward", "weight", "fused", "memory")


def load_instance(path: str | Path) -> Instance:
    """Return the instance of a file.

    The suffix ``.toml`` means TOML, everything else JSON; ``-`` stands for standard input. A batch file,
    whose costs are laws in lengths, is read as the instance of its batch.

    Raises
    ------
    InputError
        If the file cannot be read or is no instance; one line names file, key, value and what is right.
    """
    try:
        data = read_data(path)
        check_kind(data, "instance")
        if is_law(data):
            return batch_from_dict(data, Path(path).parent)
        return instance_from_dict(data)
    except InputError as error:
        raise (error if error.source else error.at(str(path))) from None


def save_instance(instance: Instance, path: str | Path) -> None:
    """Write an instance as a JSON file."""
    write_text(path, json.dumps(instance_to_dict(instance), indent=2) + "\n")


def instance_from_dict(data: Any, where: str = "") -> Instance:
    """Return the instance that the content of a file describes; `where` prefixes the keys in errors.

    Raise an InputError if the content is no instance; the message names key, value and what is right.
    """
    check_keys(data, _REQUIRED, _OPTIONAL, where)
    values = dict(data)
    memory = values.get("memory")
    if memory is not None:
        check_keys(memory, _MEMORY, (), f"{where}memory")
        values["memory"] = Memory(**memory)
    if values.get("step") is not None:
        check_keys(values["step"], (), _STEP, f"{where}step")
        values["step"] = Step(**values["step"])
    if values.get("offload") is not None:
        check_keys(values["offload"], _OFFLOAD, ("duplex",), f"{where}offload")
        values["offload"] = Offload(**values["offload"])
    if "classes" in values:
        values["classes"] = _parts(values["classes"], MicrobatchClass, ("count",), f"{where}classes")
    elif "microbatches" not in values:
        raise InputError(f"missing key 'microbatches'{f' in {where[:-1]}' if where else ''}")
    if "slices" in values:
        values["slices"] = _parts(values["slices"], MicrobatchSlice, (), f"{where}slices")
    try:
        return Instance.uniform(**values)
    except InputError as error:
        raise InputError(error.rule, key=f"{where}{error.key}", value=error.value) from None


def _parts(data: Any, kind: type[Part], required: tuple[str, ...], key: str) -> list[Part]:
    """Return the classes or the slices of microbatches of a file, which has them at `key`."""
    if not isinstance(data, list) or not data:
        each = "slice" if kind is MicrobatchSlice else "class"
        raise InputError(f"must be a list of tables, one for each {each}", key=key, value=data)
    parts = []
    for i, one in enumerate(data):
        check_keys(one, required, _PART, f"{key}[{i}].")
        values = dict(one)
        if values.get("memory") is not None:
            check_keys(values["memory"], _MEMORY[:3], (), f"{key}[{i}].memory")
            values["memory"] = Memory(**values["memory"])
        parts.append(kind(**values))
    return parts


def _part_to_dict(instance: Instance, one: MicrobatchClass | MicrobatchSlice) -> dict[str, Any]:
    """Return the entries in which a class or a slice differs from the instance."""
    data: dict[str, Any] = {"count": one.count} if isinstance(one, MicrobatchClass) else {}
    for key in ("forward", "backward", "weight"):
        if getattr(one, key) != getattr(instance.costs, key):
            data[key] = _collapse(getattr(one, key))
    if one.fused != (instance.costs.fused or sums(one.backward, one.weight)):  # type: ignore[arg-type]
        data["fused"] = _collapse(one.fused)
    if one.memory != (instance.memory and replace(instance.memory, limit=None)):
        data["memory"] = {key: _collapse(getattr(one.memory, key)) for key in _MEMORY[:3]}
    return data


def instance_to_dict(instance: Instance) -> dict[str, Any]:
    """Return the content of an instance's file; a list of equal numbers becomes one number."""
    costs, memory = instance.costs, instance.memory
    data: dict[str, Any] = {
        "devices": instance.devices,
        "microbatches": instance.microbatches,
        "placement": instance.placement.name,
    }
    if not instance.placement.usual:
        data["chunks"] = instance.placement.chunks
    data |= {key: _collapse(getattr(costs, key)) for key in ("forward", "backward", "weight")}
    data["comm"] = _collapse_comm(costs.comm)
    data["memory"] = None if memory is None else {key: _collapse(getattr(memory, key)) for key in _MEMORY}
    data["objective"] = str(instance.objective)
    if costs.fused is not None:
        data["fused"] = _collapse(costs.fused)
    if costs.overlapped is not None:
        data["overlapped"] = _collapse(costs.overlapped)
    if costs.pairs is not None:
        data["pairs"] = [list(row) for row in costs.pairs]  # type: ignore[union-attr]
    if costs.link_occupancy:
        data["link_occupancy"] = costs.link_occupancy
    if instance.step is not None:
        data["step"] = {key: _collapse(getattr(instance.step, key)) for key in _STEP}
    if instance.offload is not None:
        data["offload"] = {key: _collapse(getattr(instance.offload, key)) for key in _OFFLOAD}
        data["offload"]["duplex"] = instance.offload.duplex
    if instance.classes:
        data["classes"] = [_part_to_dict(instance, one) for one in instance.classes]
    if instance.slices:
        data["slices"] = [_part_to_dict(instance, one) for one in instance.slices]
    if instance.iterations > 1 or not instance.flush:
        data |= {"iterations": instance.iterations, "flush": instance.flush}
    return data


def _collapse(values: Any) -> Any:
    if values is None:
        return None
    return values[0] if len(set(values)) == 1 else list(values)


def _collapse_comm(comm: Any) -> Any:
    off_diagonal = {c for i, row in enumerate(comm) for j, c in enumerate(row) if i != j}
    if len(off_diagonal) <= 1:
        return off_diagonal.pop() if off_diagonal else 0
    return [list(row) for row in comm]
