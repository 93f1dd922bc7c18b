"""Law files: instance files whose costs are laws in the lengths of sequences, and the batches that use them.

A law file has the keys of an instance file, without `microbatches` and `classes`. Times and changes of the
memory may be laws: tables of `fixed`, `tokens` and `squares`, e.g. ``{ fixed = 20, tokens = 0.4 }``, one for
all stages or one per stage. With the key `lengths`, a law file is a *batch file*, which is read as an
instance wherever an instance is.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..base.data_files import check_keys, read_data
from ..base.errors import InputError, check_int, is_list
from ..base.files import read_text, write_text
from .costs import Step, objective_of
from .instance import MOST_DEVICES, Instance, chunks_from_lists
from .law import COEFFICIENTS, CostLaw, Law, Laws, Microbatch, microbatches_of
from .placement import Placement

_TIMES = ("forward", "backward", "weight")
_REQUIRED = ("devices", *_TIMES)
_OPTIONAL = (
    *("placement", "chunks", "comm", "memory", "objective", "fused", "link_occupancy", "step"),
    *("lengths", "tokens", "stages", "recomputed_layers"),
)
_LARGEST = 1e12
_DIGITS = 12  # most digits of a length


def is_law(data: Any) -> bool:
    """Return whether the content of a file is a law file: it has lengths, or some cost is a law.

    A file that says how many microbatches there are is an instance file, whose costs are no laws.
    """
    if not isinstance(data, dict) or "microbatches" in data or "classes" in data:
        return False
    memory = data.get("memory")
    costs = [data.get(key) for key in (*_TIMES, "fused")]
    costs += [memory.get(key) for key in _TIMES] if isinstance(memory, dict) else []
    single = (one for cost in costs for one in (cost if isinstance(cost, list) else [cost]))
    return "lengths" in data or any(isinstance(one, dict) for one in single)


def load_law(path: str | Path) -> CostLaw:
    """Return the law of a law file, which is TOML if its name ends in ``.toml``, else JSON.

    Raises
    ------
    InputError
        If the file cannot be read or is no law file; one line names file, key, value and what is right.
    """
    try:
        return law_from_dict(read_data(path))
    except InputError as error:
        raise (error if error.source else error.at(str(path))) from None


def law_from_dict(data: Any) -> CostLaw:
    """Return the law that the content of a file describes.

    Raise an InputError if the content is no law; the message names key, value and what is right.
    """
    check_keys(data, _REQUIRED, _OPTIONAL)
    devices = check_int("devices", data["devices"], 1, MOST_DEVICES)
    name, chunks = data.get("placement", "v"), data.get("chunks")
    if chunks is None:
        chunks = chunks_from_lists(name, devices, tuple(data[key] for key in _TIMES))
    placement = Placement(name, devices, chunks)
    memory, step = data.get("memory"), data.get("step")
    if memory is not None:
        check_keys(memory, (*_TIMES, "limit"), (), "memory")
    if step is not None:
        check_keys(step, (), ("ready", "reduce", "optimizer"), "step")
    stages = placement.stages
    return CostLaw(
        placement,
        _laws("forward", data["forward"], stages),
        _laws("backward", data["backward"], stages),
        _laws("weight", data["weight"], stages),
        fused=_laws("fused", data["fused"], stages) if "fused" in data else None,
        comm=law_of("comm", data["comm"]) if isinstance(data.get("comm"), dict) else data.get("comm", 0),
        memory=None if memory is None else _memory(memory, stages),
        limit=None if memory is None else memory["limit"],
        objective=objective_of(data.get("objective", "device_span")),
        step=None if step is None else Step(**step),
        link_occupancy=data.get("link_occupancy", 0),
    )


def _memory(table: Mapping[str, Any], stages: int) -> tuple[Laws, Laws, Laws]:
    forward, backward, weight = (_laws(f"memory.{key}", table[key], stages) for key in _TIMES)
    return forward, backward, weight


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


def batch_from_dict(data: Any, folder: Path) -> Instance:
    """Return the instance of a batch file; a CSV file that it names lies in `folder`.

    Raise an InputError if the content is no law, has no lengths, or a law gives no time at one of the
    microbatches.
    """
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
    try:
        if Path(path).suffix in (".toml", ".json"):
            data = read_data(path)
            return microbatches_of(data.get("lengths") if isinstance(data, dict) else data, tokens)
        return microbatches_of(_from_table(read_text(path)), tokens)
    except InputError as error:
        raise (error if error.source else error.at(str(path))) from None


def _from_table(text: str) -> list[Any]:
    """Return the lengths of a table's rows, or for each microbatch the list of its lengths."""
    reader = csv.reader(text.splitlines())
    rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
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
    data |= {key: _collapse(getattr(law, key)) for key in _TIMES}
    if law.fused is not None:
        data["fused"] = _collapse(law.fused)
    data["comm"] = table_of(law.comm) if isinstance(law.comm, Law) else law.comm
    if law.memory is not None:
        data["memory"] = {key: _collapse(one) for key, one in zip(_TIMES, law.memory, strict=True)}
        data["memory"]["limit"] = law.limit
    data["objective"] = str(law.objective)
    if law.link_occupancy:
        data["link_occupancy"] = law.link_occupancy
    if law.step is not None:
        data["step"] = {key: getattr(law.step, key) for key in ("ready", "reduce", "optimizer")}
    return data


def _collapse(laws: Laws) -> Any:
    tables = [table_of(law) for law in laws]
    return tables[0] if all(table == tables[0] for table in tables) else tables


def table_of(law: Law, digits: int = 9) -> dict[str, float] | int:
    """Return the table of a law with so many digits, all of which are 17; 0 for a law that is 0."""
    parts = {name: float(f"{getattr(law, name):.{digits}g}") for name in COEFFICIENTS if getattr(law, name)}
    return parts or 0
