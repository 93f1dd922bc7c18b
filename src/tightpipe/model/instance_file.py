"""Instances are read from JSON or TOML files and written as JSON; so are laws and the batches that use them.

A law file has the keys of an instance file, without `microbatches` and `classes`. Times and changes of the
memory may be laws: tables of `fixed`, `tokens` and `squares`, e.g. ``{ fixed = 20, tokens = 0.4 }``, one for
all stages or one per stage. With the key `lengths`, a law file is a *batch file*, which is read as an
instance wherever an instance is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..base.errors import InputError, about_file, check_int, is_list
from ..base.files import check_keys, check_kind, csv_rows, read_data, read_text, write_text
from .costs import Memory, MicrobatchClass, MicrobatchSlice, Offload, Part, Step, objective_of, sums
from .instance import MOST_DEVICES, Instance, chunks_from_lists
from .law import COEFFICIENTS, CostLaw, Law, Laws, Microbatch, microbatches_of
from .placement import Placement

_TIMES = ("forward", "backward", "weight")
_REQUIRED = ("devices", *_TIMES)
_OPTIONAL = (
    *("microbatches", "placement", "chunks", "comm", "memory", "objective"),
    *("fused", "overlapped", "pairs", "link_occupancy", "iterations", "flush", "step", "classes", "slices"),
    "offload",
)
_OPTIONAL_OF_LAW = (
    *("placement", "chunks", "comm", "memory", "objective", "fused", "link_occupancy", "step"),
    *("lengths", "tokens", "stages", "recomputed_layers"),
)
_MEMORY = (*_TIMES, "limit")
_STEP = ("ready", "reduce", "optimizer")
_OFFLOAD = ("memory", "out", "back")
_LARGEST = 1e12
_DIGITS = 12  # most digits of a length


def load_instance(path: str | Path) -> Instance:
    """Return the instance of a file.

    The suffix ``.toml`` means TOML, everything else JSON; ``-`` stands for standard input. A batch file,
    whose costs are laws in lengths, is read as the instance of its batch.

    Raises
    ------
    InputError
        If the file cannot be read or is no instance; one line names file, key, value and what is right.
    """
    with about_file(path):
        data = read_data(path)
        check_kind(data, "instance")
        return _batch_from_dict(data, Path(path).parent) if _is_law(data) else instance_from_dict(data)


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
        check_keys(one, required, (*_TIMES, "fused", "memory"), f"{key}[{i}].")
        values = dict(one)
        if values.get("memory") is not None:
            check_keys(values["memory"], _TIMES, (), f"{key}[{i}].memory")
            values["memory"] = Memory(**values["memory"])
        parts.append(kind(**values))
    return parts


def _part_to_dict(instance: Instance, one: MicrobatchClass | MicrobatchSlice) -> dict[str, Any]:
    """Return the entries in which a class or a slice differs from the instance."""
    data: dict[str, Any] = {"count": one.count} if isinstance(one, MicrobatchClass) else {}
    for key in _TIMES:
        if getattr(one, key) != getattr(instance.costs, key):
            data[key] = _collapse(getattr(one, key))
    if one.fused != (instance.costs.fused or sums(one.backward, one.weight)):  # type: ignore[arg-type]
        data["fused"] = _collapse(one.fused)
    if one.memory != (instance.memory and replace(instance.memory, limit=None)):
        data["memory"] = _collapsed(one.memory, _TIMES)
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
    data |= _collapsed(costs, _TIMES)
    data["comm"] = _collapse_comm(costs.comm)
    data["memory"] = None if memory is None else _collapsed(memory, _MEMORY)
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
        data["step"] = _collapsed(instance.step, _STEP)
    if instance.offload is not None:
        data["offload"] = _collapsed(instance.offload, _OFFLOAD) | {"duplex": instance.offload.duplex}
    if instance.classes:
        data["classes"] = [_part_to_dict(instance, one) for one in instance.classes]
    if instance.slices:
        data["slices"] = [_part_to_dict(instance, one) for one in instance.slices]
    if instance.iterations > 1 or not instance.flush:
        data |= {"iterations": instance.iterations, "flush": instance.flush}
    return data


def _collapsed(costs: Any, keys: Sequence[str]) -> dict[str, Any]:
    return {key: _collapse(getattr(costs, key)) for key in keys}


def _collapse(values: Any) -> Any:
    """Return one value where all are equal, else a list; None stays None."""
    if values is None:
        return None
    return values[0] if all(value == values[0] for value in values) else list(values)


def _collapse_comm(comm: Any) -> Any:
    off_diagonal = {c for i, row in enumerate(comm) for j, c in enumerate(row) if i != j}
    if len(off_diagonal) <= 1:
        return off_diagonal.pop() if off_diagonal else 0
    return [list(row) for row in comm]


def _is_law(data: Any) -> bool:
    """Return whether the content of a file is a law file: it has lengths, or some cost is a law.

    Without lengths, a file that says how many microbatches there are is an instance file.
    """
    if not isinstance(data, dict) or (_counts_microbatches(data) and "lengths" not in data):
        return False
    memory = data.get("memory")
    costs = [data.get(key) for key in (*_TIMES, "fused")]
    costs += [memory.get(key) for key in _TIMES] if isinstance(memory, dict) else []
    single = (one for cost in costs for one in (cost if isinstance(cost, list) else [cost]))
    return "lengths" in data or any(isinstance(one, dict) for one in single)


def _counts_microbatches(data: dict[str, Any]) -> bool:
    return "microbatches" in data or "classes" in data


def load_law(path: str | Path) -> CostLaw:
    """Return the law of a law file, which is TOML if its name ends in ``.toml``, else JSON.

    Raises
    ------
    InputError
        If the file cannot be read or is no law file; one line names file, key, value and what is right.
    """
    with about_file(path):
        data = read_data(path)
        if isinstance(data, dict) and _counts_microbatches(data) and not _is_law(data):
            raise InputError(
                "is an instance file, must be a law file, which leaves microbatches to the lengths"
            )
        return law_from_dict(data)


def law_from_dict(data: Any) -> CostLaw:
    """Return the law in a file's content; raise an InputError with key, value and rule if it is none."""
    check_keys(data, _REQUIRED, _OPTIONAL_OF_LAW)
    devices = check_int("devices", data["devices"], 1, MOST_DEVICES)
    name, chunks = data.get("placement", "v"), data.get("chunks")
    if chunks is None:
        chunks = chunks_from_lists(name, devices, tuple(data[key] for key in _TIMES))
    placement = Placement(name, devices, chunks)
    memory, step = data.get("memory"), data.get("step")
    if memory is not None:
        check_keys(memory, _MEMORY, (), "memory")
    if step is not None:
        check_keys(step, (), _STEP, "step")

    def laws(table: Any, prefix: str = "") -> tuple[Laws, Laws, Laws]:
        forward, backward, weight = (_laws(f"{prefix}{key}", table[key], placement.stages) for key in _TIMES)
        return forward, backward, weight

    return CostLaw(
        placement,
        *laws(data),
        fused=_laws("fused", data["fused"], placement.stages) if "fused" in data else None,
        comm=law_of("comm", data["comm"]) if isinstance(data.get("comm"), dict) else data.get("comm", 0),
        memory=None if memory is None else laws(memory, "memory."),
        limit=None if memory is None else memory["limit"],
        objective=objective_of(data.get("objective", "device_span")),
        step=None if step is None else Step(**step),
        link_occupancy=data.get("link_occupancy", 0),
    )


def _laws(key: str, value: Any, stages: int) -> Laws:
    """Return a law for each stage, from one law for all stages or from a list."""
    if not is_list(value):
        return (law_of(key, value),) * stages
    return tuple(law_of(f"{key}[{i}]", one) for i, one in enumerate(value))


def law_of(key: str, value: Any) -> Law:
    """Return the law of a table of coefficients, or of a number, which is the same at all lengths."""
    table = value if isinstance(value, dict) else {"fixed": value}
    check_keys(table, (), COEFFICIENTS, f"{key}.")
    for name, number in table.items():
        finite = isinstance(number, int | float) and not isinstance(number, bool) and abs(number) < _LARGEST
        if not finite:
            where = f"{key}.{name}" if table is value else key
            rule = "must be a number, or a law: a table of numbers 'fixed', 'tokens' and 'squares'"
            raise InputError(rule, key=where, value=number)
    return Law(**table)


def _batch_from_dict(data: Any, folder: Path) -> Instance:
    """Return the instance of a batch file; a CSV file that it names lies in `folder`."""
    law = law_from_dict(data)
    if "lengths" not in data:
        raise InputError("missing key 'lengths': the costs are laws in the lengths of sequences")
    lengths = data["lengths"]
    if isinstance(lengths, str):
        return law.instance(load_lengths(folder / lengths, data.get("tokens")))
    return law.instance(microbatches_of(lengths, data.get("tokens")))


def load_lengths(path: str | Path, tokens: int | None = None) -> tuple[Microbatch, ...]:
    """Return the microbatches of a file of lengths.

    A file whose name ends in ``.toml`` or ``.json`` has the key `lengths` with a list, or is such a list.
    Every other file is a table with a column `length`, and a row for each sequence. Sequences with the same
    text in a column `microbatch` are packed into one microbatch. A table of a single column needs no header.

    Parameters
    ----------
    path
        The file.
    tokens
        The most tokens of a microbatch into which sequences are packed, as in `microbatches_of`.

    Raises
    ------
    InputError
        If the file cannot be read, or as in `microbatches_of`; the message names the file.
    """
    with about_file(path):
        if Path(path).suffix in (".toml", ".json"):
            data = read_data(path)
            return microbatches_of(data.get("lengths") if isinstance(data, dict) else data, tokens)
        return microbatches_of(_from_table(read_text(path)), tokens)


def _from_table(text: str) -> list[Any]:
    """Return the lengths of a table's rows, or for each microbatch the list of its lengths."""
    rows = [(line, [cell.strip() for cell in row]) for line, row in csv_rows(text) if row]
    if not rows:
        raise InputError("is empty, must have a column length")
    head = ["length"] if rows[0][1][0].lstrip("+-").isdecimal() else rows.pop(0)[1]
    if "length" not in head or not set(head) <= {"microbatch", "length"}:
        rule = "must begin with length, or with microbatch,length"
        raise InputError(rule, key="line 1", value=",".join(head))
    grouped: dict[str, list[int]] = {}
    single: list[Any] = []
    for line, row in rows:
        cells = dict(zip(head, row, strict=False))
        if len(row) != len(head) or not cells["length"].isdecimal() or len(cells["length"]) > _DIGITS:
            rule = f"must be a row of {','.join(head)}, with a length in whole tokens"
            raise InputError(rule, key=f"line {line}", value=",".join(row))
        length = check_int(f"line {line}: length", int(cells["length"]), 1)
        single.append(length)
        grouped.setdefault(cells.get("microbatch", ""), []).append(length)
    return list(grouped.values()) if "microbatch" in head else single


def save_law(law: CostLaw, path: str | Path) -> None:
    """Write a law as a JSON file."""
    write_text(path, json.dumps(law_to_dict(law), indent=2) + "\n")


def law_to_dict(law: CostLaw) -> dict[str, Any]:
    """Return the content of a law file; equal entries of all stages become one."""
    data: dict[str, Any] = {"devices": law.placement.devices, "placement": law.placement.name}
    if not law.placement.usual:
        data["chunks"] = law.placement.chunks
    data |= _collapsed_laws((law.forward, law.backward, law.weight))
    if law.fused is not None:
        data["fused"] = _collapse([table_of(one) for one in law.fused])
    data["comm"] = table_of(law.comm) if isinstance(law.comm, Law) else law.comm
    if law.memory is not None:
        data["memory"] = _collapsed_laws(law.memory) | {"limit": law.limit}
    data["objective"] = str(law.objective)
    if law.link_occupancy:
        data["link_occupancy"] = law.link_occupancy
    if law.step is not None:
        data["step"] = {key: getattr(law.step, key) for key in _STEP}
    return data


def _collapsed_laws(laws: tuple[Laws, Laws, Laws]) -> dict[str, Any]:
    return {key: _collapse([table_of(law) for law in one]) for key, one in zip(_TIMES, laws, strict=True)}


def table_of(law: Law, digits: int = 9) -> dict[str, float] | int:
    """Return the table of a law with so many digits, all of which are 17; 0 for a law that is 0."""
    parts = {name: float(f"{getattr(law, name):.{digits}g}") for name in COEFFICIENTS if getattr(law, name)}
    return parts or 0
