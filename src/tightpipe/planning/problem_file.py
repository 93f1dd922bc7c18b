"""Model files: planning problems, the input of `tightpipe plan`, as TOML or JSON.

The page docs/plan.md explains every key. Numbers that are allowed but unusual are explained in words
(`unusual_numbers`). They mostly come from a mistaken unit, e.g. bytes per second in place of bytes per tick.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from typing import Any

from ..base.errors import (
    InputError,
    about_entry,
    about_file,
    check_choice,
    check_flag,
    check_int,
    check_text,
    is_list,
)
from ..base.files import check_keys, check_kind, read_data
from ..model.costs import Objective
from ..model.instance import MOST_DEVICES, MOST_OPERATIONS
from ..model.instance_file import law_of, load_lengths, table_of
from ..model.law import Law
from ..model.placement import PLACEMENTS
from ..settings.expert_parallel import ExpertLayer
from .cluster import Network, choices, cluster_from_table, table_of_cluster
from .layered_model import MOST_LAYERS, Layer, Model, Recomputation
from .model_law import (
    BYTES,
    EQUAL,
    KEYS,
    MOST_SLICES,
    NOTHING,
    TIMES,
    LayerLaw,
    ModelLaw,
    model_at,
    sampling_from,
)
from .problem import RUNTIMES, SCHEDULING, Batch, PlanningProblem, SearchSpace, check_problem
from .units import USUAL_TICK, check_ticks, decimal, parse_tick

_COSTS = ("fused", *BYTES)
_OF_LAYER = (*_COSTS, "parameters")
_OF_KIND = ("weight_activation", "transient")
_UNNAMED = "layer"


def _layers(tables: Any) -> list[Layer | LayerLaw]:
    """Return the layers of tables, each of which gives `count` equal ones: laws if any of them has a law."""
    if not is_list(tables) or not tables:
        raise InputError("must be at least one table [[layers]]", key="layers", value=tables)
    tables = [_with_bytes(table) for table in tables]
    laws = any(isinstance(value, dict) for table in tables for value in _costs_of(table))
    found: list[Layer | LayerLaw] = []
    for index, table in enumerate(tables):
        where = f"layers[{index}]"
        in_parts = not laws and isinstance(table, dict) and "experts" in table
        others = ("name", "kind", "count", *_OF_LAYER, "recompute", *(() if laws else ("experts",)))
        check_keys(table, () if in_parts else TIMES, (*TIMES, *others) if in_parts else others, where)
        count = check_int(f"{where}.count", table.get("count", 1), 1)
        if len(found) + count > MOST_LAYERS:
            rule = f"makes {len(found) + count} layers, a model has at most {MOST_LAYERS}"
            raise InputError(rule, key=f"{where}.count", value=count)
        found += [_layer_law(table, where) if laws else _layer(table, where)] * count
    return found


def _with_bytes(table: Any) -> Any:
    """Return a layer's table in which bytes, or their law, stand for ``offload = true``: all activations."""
    if not isinstance(table, dict) or not isinstance(table.get("offload"), bool):
        return table
    return {**table, "offload": table.get("activation", 0) if table["offload"] else 0}


def _costs_of(table: Any) -> Iterator[Any]:
    """Yield the ticks and bytes in a layer's table, also those of recomputation, each a number or a law."""
    if isinstance(table, dict):
        yield from (table[key] for key in (*TIMES, *_COSTS) if key in table)
        kinds: Any = table.get("recompute")
        for kind in kinds if is_list(kinds) else ():
            yield from kind.values() if isinstance(kind, dict) else ()


def _layer_law(table: dict[str, Any], where: str) -> LayerLaw:
    """Return the laws of a layer's table; a number is the same at all lengths."""
    laws = {key: law_of(f"{where}.{key}", table[key]) for key in (*TIMES, *_COSTS) if key in table}
    rest: dict[str, Any] = dict.fromkeys(TIMES, 0)
    rest |= {key: table[key] for key in ("name", "kind", "parameters") if key in table}
    kinds = tuple(_kind_laws(table.get("recompute", []), f"{where}.recompute"))
    return LayerLaw(_layer(rest, where), tuple(laws.items()), kinds)


def _layer(table: dict[str, Any], where: str) -> Layer:
    name = check_text(f"{where}.name", table.get("name", _UNNAMED))
    experts = ExpertLayer.from_tables(table["experts"], f"{where}.experts") if "experts" in table else None
    parts = {} if experts is None else {key: getattr(experts, key).ticks for key in TIMES}
    times = {
        key: check_ticks(f"{where}.{key}", value) for key, value in (parts | table).items() if key in TIMES
    }
    given = {key: table[key] for key in _OF_LAYER if key in table}
    if "fused" in table:
        check_ticks(f"{where}.fused", table["fused"])
    kinds = tuple(_recomputations(table.get("recompute", []), f"{where}.recompute"))
    with about_entry(where):
        return Layer(name, **times, **given, recompute=kinds, kind=table.get("kind"), experts=experts)


def _recomputations(tables: Any, where: str) -> Iterator[Recomputation]:
    for here, table in _kind_tables(tables, where):
        check_ticks(f"{here}.ticks", table["ticks"])
        with about_entry(here):
            yield Recomputation(**table)


def _kind_laws(tables: Any, where: str) -> Iterator[tuple[str, tuple[tuple[str, Law], ...]]]:
    for here, table in _kind_tables(tables, where):
        laws = {key: law_of(f"{here}.{key}", value) for key, value in table.items() if key != "name"}
        if not isinstance(table["name"], str) or not table["name"]:
            raise InputError("must be a text, the name of the kind", key=f"{here}.name", value=table["name"])
        yield table["name"], tuple(laws.items())


def _kind_tables(tables: Any, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if not is_list(tables):
        raise InputError("must be a list of tables, one for each kind", key=where, value=tables)
    for index, table in enumerate(tables):
        here = f"{where}[{index}]"
        check_keys(table, ("name", "ticks", "activation"), _OF_KIND, here)
        yield here, table


def tables_of(model: Model | ModelLaw) -> list[dict[str, Any]]:
    """Return the tables of a model; equal neighbours share a table, and entries of 0 or None are left out."""
    layers: tuple[Layer | LayerLaw, ...] = model.layers
    return [_table(layer, len(list(equal))) for layer, equal in groupby(layers)]


def _table(one: Layer | LayerLaw, count: int) -> dict[str, Any]:
    layer = one.layer if isinstance(one, LayerLaw) else one
    kind = {} if layer.kind is None else {"kind": layer.kind}
    counted = {"count": count} if count > 1 else {}
    times = {key: getattr(layer, key) for key in TIMES}
    if layer.experts is not None:
        times = {"experts": asdict(layer.experts)}
    usual = {"output": None, "fused": None}
    given = {key: getattr(layer, key) for key in _OF_LAYER if getattr(layer, key) != usual.get(key, 0)}
    kinds = [
        {key: value for key, value in asdict(each).items() if value is not None} for each in layer.recompute
    ]
    if isinstance(one, LayerLaw):
        times = {key: table_of(law, 17) for key, law in one.laws}
        kinds = [{"name": each} | {key: table_of(law, 17) for key, law in laws} for each, laws in one.kinds]
    again = {"recompute": kinds} if kinds else {}
    return {"name": layer.name} | kind | counted | times | given | again


_GLOBAL = ("global_batch", "microbatch_size", "data_parallel")
_SEARCH = (
    *("placements", "chunks", "recompute", "objective", "methods", "runtime", "slices", "equal", "empty"),
)


def load_problem(path: str | Path) -> PlanningProblem:
    """Return the planning problem of a model file.

    The suffix ``.toml`` means TOML, everything else JSON; ``-`` stands for standard input.

    Raises
    ------
    InputError
        If the file cannot be read or is no model file; the message names file, key, value and the rule.
    """
    with about_file(path):
        data = read_data(path)
        check_kind(data, "model")
        return problem_from_dict(_with_lengths(data, Path(path).parent))


def _with_lengths(data: Any, folder: Path) -> Any:
    """Return the content of a model file with the lengths of the CSV file that it names, if it does."""
    batch = data.get("batch") if isinstance(data, dict) else None
    if not isinstance(batch, dict) or not isinstance(batch.get("lengths"), str):
        return data
    lengths = [length for one in load_lengths(folder / batch["lengths"]) for length in one]
    return {**data, "batch": {**batch, "lengths": lengths}}


def problem_from_dict(data: Any) -> PlanningProblem:
    """Return the planning problem that the content of a model file describes.

    Raises
    ------
    InputError
        If the content is no planning problem; the message names key, value and the rule.
    """
    check_keys(data, ("layers", "cluster", "batch"), ("tick", "search"))
    layers = _layers(data["layers"])
    pipelines = _with_pipelines(data["batch"], data["cluster"])
    _check_pipelines(pipelines, data["cluster"])
    batch = _batch(pipelines)
    law = ModelLaw(tuple(one for one in layers if isinstance(one, LayerLaw)))
    problem = PlanningProblem(
        _at(law, batch) if law.layers else Model(tuple(one for one in layers if isinstance(one, Layer))),
        cluster_from_table(data["cluster"], batch.data_parallel),
        batch,
        _space(data.get("search", {})),
        parse_tick("tick", data["tick"]) if "tick" in data else USUAL_TICK,
        law if law.layers else None,
    )
    check_problem(problem)
    return problem


def _at(law: ModelLaw, batch: Batch) -> Model:
    """Return the model of laws for the microbatches of a batch."""
    if batch.sampling is not None:
        return model_at(law, *batch.sampling.mean[1:])
    if batch.tokens is None:
        raise InputError("missing key 'sequence_length' in batch: the costs of layers are laws of it")
    return model_at(law, batch.tokens, batch.tokens * (batch.tokens // batch.sequences))


def problem_to_dict(problem: PlanningProblem) -> dict[str, Any]:
    """Return the content of a model file, from which `problem_from_dict` makes the same problem.

    Only a fraction that no decimal number equals, e.g. a bandwidth of 1/3 bytes per tick, is rounded to 17
    digits.
    """
    space = problem.space
    given = {key: getattr(space, key) for key in ("chunks", "methods", "runtime", "slices", "equal", "empty")}
    changed = {key: value for key, value in given.items() if value != getattr(SearchSpace(), key)}
    return {
        "tick": str(problem.tick),
        "layers": tables_of(problem.law or problem.model),
        "cluster": table_of_cluster(problem.cluster, problem.batch.data_parallel),
        "batch": _table_of_batch(problem.batch),
        "search": {
            "placements": list(space.placements),
            "recompute": list(space.recompute),
            "objective": str(space.objective),
            **{key: list(value) if isinstance(value, tuple) else value for key, value in changed.items()},
        },
    }


def _with_pipelines(batch: Any, cluster: Any) -> Any:
    """Return the table of the batch with the number of pipelines that follows from that of all GPUs."""
    if not (isinstance(batch, dict) and isinstance(cluster, dict) and "gpus" in cluster):
        return batch
    devices = choices("cluster.devices", cluster.get("devices"), MOST_DEVICES)
    if len(devices) > 1:
        several = ",".join(map(str, devices))
        rule = f"needs one number in cluster.devices; plan --devices {several} compares these on as many GPUs"
        raise InputError(rule, key="cluster.gpus", value=cluster["gpus"])
    pipelines, rest = divmod(check_int("cluster.gpus", cluster["gpus"], 1), devices[0])
    if rest or not pipelines:
        rule = f"must be a multiple of the devices of a pipeline, {devices[0]}"
        raise InputError(rule, key="cluster.gpus", value=cluster["gpus"])
    if batch.get("data_parallel", pipelines) != pipelines:
        rule = f"contradicts cluster.gpus: {cluster['gpus']} GPUs are {pipelines} pipelines"
        raise InputError(rule, key="batch.data_parallel", value=batch["data_parallel"])
    return {**batch, "data_parallel": pipelines}


def _check_pipelines(batch: Any, cluster: Any) -> None:
    """Raise an InputError if pipelines share state, but nothing says how many they are."""
    shares = isinstance(cluster, dict) and cluster.get("sharding", "none") != "none"
    if shares and isinstance(batch, dict) and "data_parallel" not in batch:
        rule = "needs batch.data_parallel, the number of pipelines that share the state"
        raise InputError(rule, key="cluster.sharding", value=cluster["sharding"])


def _batch(table: Any) -> Batch:
    if isinstance(table, dict) and "lengths" in table:
        check_keys(table, KEYS[:2], (*KEYS[2:], "data_parallel"), "batch")
        sampling = sampling_from(table)
        pipelines = check_int("batch.data_parallel", table.get("data_parallel", 1), 1)
        count, mean, _ = sampling.mean
        return Batch(max(1, round(count)), round(mean), pipelines, 1, sampling)
    check_keys(table, (), ("microbatches", *_GLOBAL, "sequence_length"), "batch")
    numbers = {key: check_int(f"batch.{key}", value, 1) for key, value in table.items()}
    for key in ("global_batch", "sequence_length"):
        if key in numbers and "microbatch_size" not in numbers:
            raise InputError("needs batch.microbatch_size beside it", key=f"batch.{key}", value=numbers[key])
    rows, data_parallel = numbers.get("microbatch_size", 1), numbers.get("data_parallel", 1)
    microbatches = _microbatches(numbers, rows * data_parallel)
    tokens = rows * numbers["sequence_length"] if "sequence_length" in numbers else None
    return Batch(microbatches, tokens, data_parallel, 1 if tokens is None else rows)


def _microbatches(numbers: dict[str, int], at_once: int) -> int:
    """Return the microbatches of one pipeline, if one of every pipeline has `at_once` sequences together."""
    if "global_batch" not in numbers:
        if "microbatches" not in numbers:
            raise InputError("missing key 'microbatches' in batch; or give global_batch and microbatch_size")
        return check_int("batch.microbatches", numbers["microbatches"], 1, MOST_OPERATIONS)
    total = numbers["global_batch"]
    if total % at_once:
        rule = f"must be a multiple of microbatch_size x data_parallel, {at_once}"
        raise InputError(rule, key="batch.global_batch", value=total)
    found = total // at_once
    if numbers.get("microbatches", found) != found:
        rule = f"contradicts the other keys: global_batch / (microbatch_size x data_parallel) is {found}"
        raise InputError(rule, key="batch.microbatches", value=numbers["microbatches"])
    return check_int("batch.global_batch / (microbatch_size x data_parallel)", found, 1, MOST_OPERATIONS)


def _table_of_batch(batch: Batch) -> dict[str, Any]:
    table: dict[str, Any] = {"microbatches": batch.microbatches, "data_parallel": batch.data_parallel}
    if batch.sampling is not None:
        return batch.sampling.table() | {"data_parallel": batch.data_parallel}
    if batch.tokens is None:
        return table
    length = batch.tokens // batch.sequences
    return table | {"microbatch_size": batch.sequences, "sequence_length": length}


def _space(table: Any) -> SearchSpace:
    check_keys(table, (), _SEARCH, "search")
    chunks = table.get("chunks")
    runtime = check_choice("search.runtime", table.get("runtime", "any"), *RUNTIMES)
    return SearchSpace(
        _names("search.placements", table.get("placements", RUNTIMES[runtime].placements), PLACEMENTS),
        None if chunks is None else choices("search.chunks", chunks, MOST_OPERATIONS),
        _kinds("search.recompute", table.get("recompute", [])),
        Objective(check_choice("search.objective", table.get("objective", str(Objective.STEP)), *Objective)),
        None if "methods" not in table else _names("search.methods", table["methods"], SCHEDULING),
        runtime,
        choices("search.slices", table.get("slices", 1), MOST_SLICES),
        _names("search.equal", table.get("equal", list(EQUAL)), [*EQUAL, NOTHING]),
        check_flag("search.empty", table.get("empty", False)),
    )


def _kinds(key: str, names: Any) -> tuple[str, ...]:
    """Return names of kinds of recomputation; `check_problem` looks whether layers have them."""
    if not is_list(names) or not all(isinstance(name, str) for name in names):
        raise InputError("must be a list of kinds of recomputation", key=key, value=names)
    _refuse_twice(key, names)
    return tuple(names)


def _names(key: str, names: Any, known: Sequence[str]) -> tuple[str, ...]:
    if not is_list(names) or not names:
        raise InputError(f"must be a list of {', '.join(known)}", key=key, value=names)
    found = tuple(check_choice(f"{key}[{i}]", name, *known) for i, name in enumerate(names))
    _refuse_twice(key, found)
    return found


def _refuse_twice(key: str, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise InputError("must have each name once", key=key, value=list(names))


_BANDWIDTH = (0.5, 2000)  # GB/s: from slow Ethernet to NVLink and beyond
_LATENCY = 0.01  # seconds of a message
_FORWARD = 10  # seconds of a layer and a microbatch
_OPTIMIZER = 10  # seconds for a billion parameters


def unusual_numbers(problem: PlanningProblem) -> list[str]:
    """Return a line for each number of a problem that is unusual: its key, its value and what it means."""
    return [*_of_links(problem), *_of_times(problem)]


def _of_links(problem: PlanningProblem) -> Iterator[str]:
    comm, gradients = problem.cluster.comm, problem.cluster.gradients
    speeds: dict[str, Fraction] = {}
    waits: dict[str, Fraction] = {}
    if isinstance(comm, Network):
        speeds, waits = {"bandwidth": comm.bandwidth}, {"latency": comm.latency}
        if comm.node_size is not None:
            speeds["node_bandwidth"], waits["node_latency"] = comm.node_bandwidth, comm.node_latency
    if gradients is not None and (gradients.reduced or gradients.gathered):
        speeds["reduce_bandwidth"], waits["reduce_latency"] = gradients.bandwidth, gradients.latency
    host = problem.cluster.host
    if host is not None:
        speeds["host_bandwidth"] = min(host.out, host.back)
    second = problem.tick.seconds
    for key, speed in speeds.items():
        found = float(speed / second) / 1e9
        if not _BANDWIDTH[0] <= found <= _BANDWIDTH[1]:
            yield f"cluster.{key} {decimal(speed)} bytes per tick = {found:g} GB/s at {problem.tick}"
    for key, ticks in waits.items():
        if ticks * second > _LATENCY:
            yield f"cluster.{key} {decimal(ticks)} ticks = {float(ticks * second):g} s at {problem.tick}"


def _of_times(problem: PlanningProblem) -> Iterator[str]:
    second, gradients, seen = problem.tick.seconds, problem.cluster.gradients, set()
    for index, layer in enumerate(problem.model.layers):
        if layer in seen:
            continue
        seen.add(layer)
        where = f"of layer {index} ({layer.name})"
        if layer.forward * second > _FORWARD:
            took = float(layer.forward * second)
            yield f"forward {layer.forward} {where} = {took:g} s of a microbatch at {problem.tick}"
        apart = layer.backward + layer.weight
        if layer.together > apart:
            yield f"fused {layer.fused} {where} is more than backward + weight, {apart}: fusing never pays"
        elif layer.together < max(layer.backward, layer.weight):
            yield f"fused {layer.fused} {where} is less than the longer one of backward and weight"
    if gradients is not None and gradients.optimizer * 10**9 * second > _OPTIMIZER:
        took = float(gradients.optimizer * 10**9 * second)
        yield (
            f"cluster.optimizer {decimal(gradients.optimizer)} ticks per parameter = {took:g} s for a "
            f"billion parameters at {problem.tick}"
        )
