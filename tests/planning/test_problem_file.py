"""Model files: the contract's example, every key, round trips, and one clear line for each kind of bad input."""

from __future__ import annotations

import copy
import datetime
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tightpipe import InputError, Objective, load_instance
from tightpipe.planning import Batch, Cluster, Layer, Model, PlanningProblem, Recomputation, SearchSpace
from tightpipe.planning.cluster import Network
from tightpipe.planning.problem_file import load_problem, problem_from_dict, problem_to_dict
from tightpipe.planning.units import SECONDS, Tick

CONTRACT = """
[[layers]]                 # in sequence, the first layer first
name = "block"
count = 30                 # so many of them in a row; default 1
forward = 310              # ticks per microbatch
backward = 330
weight = 290
activation = 18874368      # bytes that F adds
weight_activation = 8388608  # the part of them that W frees at its end; B frees the rest
recompute = [              # kinds of recomputation
    { name = "selective", ticks = 20, activation = 12582912, transient = 4096 },
    { name = "full", ticks = 310, activation = 2097152, weight_activation = 4194304 },
]
parameters = 201326592     # how many
[cluster]
devices = 8                # or a list to choose from
memory = "80 GB"
reserve = "6 GB"           # default 0
bytes_per_parameter = 18   # static state; default 0
comm = 120                 # ticks or a matrix
[batch]
microbatches = 32
[search]                   # all optional
placements = ["v", "linear", "loop", "wave"]
chunks = [2]
recompute = ["full"]       # the kinds of which a plan may choose; default none
objective = "step"
"""
KINDS = (
    Recomputation("selective", 20, 12582912, transient=4096),
    Recomputation("full", 310, 2097152, 4194304),
)
BLOCK = Layer("block", 310, 330, 290, 18874368, 8388608, KINDS, None, 201326592)
SMALL: dict[str, Any] = {
    "layers": [
        {"name": "embedding", "forward": 2, "backward": 0, "weight": 1, "output": 8},
        {"name": "block", "count": 6, "forward": 5, "backward": 6, "weight": 4, "output": 8},
        {"name": "head", "forward": 9, "backward": 9, "weight": 8},
    ],
    "cluster": {"devices": 2},
    "batch": {"microbatches": 4},
}
LINKS: dict[str, Any] = {"latency": 2.5, "bandwidth": 4}
NODES: dict[str, Any] = {**LINKS, "node_size": 1, "node_latency": 1, "node_bandwidth": 8}


def changed(path: str, value: Any, base: dict[str, Any] = SMALL) -> dict[str, Any]:
    """A model file's content with another value, e.g. at ``layers.1.forward`` or for all of ``cluster``."""
    data = copy.deepcopy(base)
    *way, last = path.split(".")
    place: Any = data
    for key in way:
        place = place[int(key)] if isinstance(place, list) else place.setdefault(key, {})
    place[int(last) if isinstance(place, list) else last] = value
    return data


def with_cluster(**entries: Any) -> dict[str, Any]:
    return SMALL | {"cluster": SMALL["cluster"] | entries}


def with_batch(**entries: Any) -> dict[str, Any]:
    return SMALL | {"batch": entries}


def with_search(**entries: Any) -> dict[str, Any]:
    return SMALL | {"search": entries}


KIND = {"name": "full", "ticks": 5, "activation": 2}


def again(*kinds: Any, **search: Any) -> dict[str, Any]:
    """A model file whose block lists kinds of recomputation."""
    data = changed("layers.1", SMALL["layers"][1] | {"activation": 9, "weight_activation": 4})
    return changed("layers.1.recompute", list(kinds), data) | {"search": search}


def test_the_contracts_example_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.toml"
    path.write_text(CONTRACT)
    problem = load_problem(path)
    assert problem == PlanningProblem(
        Model((BLOCK,) * 30),
        Cluster((8,), 80 * 10**9, 6 * 10**9, Fraction(18), 120),
        Batch(32),
        SearchSpace(chunks=(2,), recompute=("full",)),
    )
    as_json = tmp_path / "model.json"
    as_json.write_text(json.dumps(problem_to_dict(problem)))
    assert load_problem(as_json) == problem


def test_what_a_file_leaves_out_has_a_usual_value() -> None:
    problem = problem_from_dict({
        "layers": [{"forward": 1, "backward": 1, "weight": 1}] * 4,
        "cluster": {"devices": 1},
        "batch": {"microbatches": 1},
    })  # fmt: skip
    assert problem == PlanningProblem(
        Model((Layer("layer", 1, 1, 1),) * 4), Cluster((1,)), Batch(1), SearchSpace()
    )


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("80 GB", 80_000_000_000),
        ("74.5GiB", 79_993_765_888),
        ("0.3 kB", 300),
        ("1.0009 kB", 1000),
        ("3MB", 3_000_000),
        ("2 MiB", 2_097_152),
        ("0.5 TB", 500_000_000_000),
        ("0.5 TiB", 549_755_813_888),
        ("1 KiB", 1024),
        (12345, 12345),
    ],
)
def test_bytes_have_units(text: str | int, size: int) -> None:
    assert problem_from_dict(with_cluster(memory=text)).cluster.memory_of(2) == (size, size)


def test_each_device_may_have_its_own_memory() -> None:
    cluster = problem_from_dict(with_cluster(memory=["80 GB", 7])).cluster
    assert cluster.memory_of(2) == (80_000_000_000, 7)


@pytest.mark.parametrize(
    ("given", "data_parallel", "each"),
    [
        (18, 1, Fraction(18)),
        (18, 4, Fraction(9, 2)),
        (2.4, 1, Fraction(12, 5)),
        ({"replicated": 6, "sharded": 12}, 8, Fraction(15, 2)),
        ({"replicated": 6}, 8, Fraction(6)),
        ({"sharded": 12}, 7, Fraction(12, 7)),
    ],
)
def test_sharded_state_is_divided_by_the_data_parallel_size(
    given: Any, data_parallel: int, each: Fraction
) -> None:
    data = changed("batch.data_parallel", data_parallel, with_cluster(bytes_per_parameter=given))
    assert problem_from_dict(data).cluster.bytes_per_parameter == each
    again = problem_to_dict(problem_from_dict(data))
    assert problem_from_dict(again).cluster.bytes_per_parameter == each


@pytest.mark.parametrize(
    ("table", "batch"),
    [
        ({"microbatches": 7}, Batch(7)),
        ({"microbatches": 7, "data_parallel": 3}, Batch(7, None, 3)),
        ({"microbatches": 7, "microbatch_size": 2, "sequence_length": 512}, Batch(7, 1024, 1, 2)),
        ({"global_batch": 96, "microbatch_size": 2, "data_parallel": 4}, Batch(12, None, 4)),
        ({"global_batch": 96, "microbatch_size": 2, "microbatches": 48}, Batch(48)),
    ],
)
def test_a_batch_is_given_in_two_ways(table: dict[str, int], batch: Batch) -> None:
    assert problem_from_dict(with_batch(**table)).batch == batch


def test_links_between_nodes_have_their_own_latency_and_bandwidth() -> None:
    cluster = problem_from_dict(changed("cluster", {"devices": 2, **NODES, "node_size": 2})).cluster
    assert cluster.comm == Network(Fraction(5, 2), Fraction(4), 2, Fraction(1), Fraction(8))
    assert [cluster.comm_ticks(0, 1, 8), cluster.comm_ticks(0, 2, 8), cluster.comm_ticks(1, 1, 8)] == [
        2,
        5,
        0,
    ]


def test_communication_may_be_a_matrix() -> None:
    cluster = problem_from_dict(with_cluster(comm=[[0, 3], [4, 0]])).cluster
    assert (cluster.comm_ticks(0, 1, 99), cluster.comm_ticks(1, 0, 99)) == (3, 4)


def test_the_search_space_is_read() -> None:
    kinds = [{"name": name, "ticks": 2, "activation": 0} for name in ("full", "half", "other")]
    data = with_search(placements=["loop"], chunks=[3, 1], recompute=["half", "full"], objective="makespan")
    data = changed("layers.1.recompute", kinds, data)
    expected = SearchSpace(("loop",), (1, 3), ("half", "full"), Objective.MAKESPAN)
    assert problem_from_dict(data).space == expected


def test_equal_neighbours_are_written_once() -> None:
    assert problem_to_dict(problem_from_dict(SMALL))["layers"] == SMALL["layers"]


def test_layers_of_different_kinds_are_different_tables() -> None:
    tables = [{**SMALL["layers"][1], "count": 1, "kind": kind} for kind in ("block", "block", "mtp")]
    written = problem_to_dict(problem_from_dict({**SMALL, "layers": tables}))["layers"]
    assert [(table["kind"], table.get("count", 1)) for table in written] == [("block", 2), ("mtp", 1)]
    assert "kind" not in problem_to_dict(problem_from_dict(SMALL))["layers"][0]


def test_a_model_whose_layers_lack_operations_is_read() -> None:
    """Whether a cut exists in which each stage has F, B and W is for the search to say."""
    frozen = changed("layers.1", {"forward": 5, "backward": 6, "weight": 0, "count": 6})
    assert len(problem_from_dict(frozen).model.layers) == 8


def test_a_model_file_is_no_instance(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps(SMALL))
    with pytest.raises(InputError, match="is a model file, must be an instance file"):
        load_instance(path)


TEXTS = [
    ("empty.toml", "", "is empty"),
    ("comment.toml", "# nothing\n", "missing key 'layers'"),
    ("empty.json", "", "not JSON, or truncated: it is empty"),
    ("cut.toml", CONTRACT[: CONTRACT.index("reserve") + 11], "not TOML, or truncated"),
    ("cut.json", json.dumps(SMALL)[:-9], "not JSON, or truncated"),
    ("none.toml", None, "no such file"),
    ("list.json", "[]", "must be a table of keys and values, as in a model file"),
    ("instance.json", '{"devices": 2, "microbatches": 3}', "is an instance file, must be a model file"),
    ("twice.toml", "[batch]\n[batch]\n", "not TOML, or truncated"),
    ("digits.toml", f"layers = {'9' * 5000}", "holds an integer of more than"),
]


@pytest.mark.parametrize(("name", "text", "message"), TEXTS, ids=[name for name, *_ in TEXTS])
def test_a_file_that_is_no_model_is_named(tmp_path: Path, name: str, text: str | None, message: str) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError) as raised:
        load_problem(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("text", "tick"),
    [
        ("1 us", Tick()),
        ("0.5 ms", Tick(Fraction(1, 2), "ms")),
        ("10ns", Tick(Fraction(10), "ns")),
        (" 2.50 s ", Tick(Fraction(5, 2), "s")),
        ("0.000000000000001 s", Tick(Fraction(1, 10**15), "s")),
    ],
)
def test_a_file_says_how_long_a_tick_is(text: str, tick: Tick) -> None:
    problem = problem_from_dict(SMALL | {"tick": text})
    assert problem.tick == tick
    assert problem_from_dict(problem_to_dict(problem)) == problem


def test_a_tick_is_a_microsecond_where_the_file_does_not_say() -> None:
    assert problem_to_dict(problem_from_dict(SMALL))["tick"] == "1 us"


BAD: list[tuple[dict[str, Any], str]] = [
    # the file
    (changed("layer", []), "layer = []: unknown key; known are layers, cluster, batch, tick, search"),
    # the tick
    *(
        (SMALL | {"tick": tick}, f"tick = {tick!r}: must be a text of a number above 0 and one of ns, us, ms, s")
        for tick in ("1", "us", "1 sec", "0 us", "0.0 ms", "-1 us", "1e3 ns", "", 1, 0.5, True, ["1 us"], None)
    ),
    ({"layers": [], "cluster": {}}, "missing key 'batch'"),
    # layers
    (changed("layers", []), "layers = []: must be at least one table"),
    (changed("layers", {"forward": 1}), "layers = {'forward': 1}: must be at least one table"),
    (changed("layers.1", 3), "layers[1] = 3: must be a table"),
    (changed("layers.1.forwards", 3), "forwards = 3: unknown key in layers[1]"),
    (changed("layers.2", {"forward": 1, "weight": 1}), "missing key 'backward' in layers[2]"),
    (changed("layers.2.forward", "9"), "layers[2].forward = '9': must be an integer"),
    (changed("layers.2.forward", 9.6), "layers[2].forward = 9.6: must be whole ticks; round it to 10"),
    (changed("layers.2.forward", float("nan")), "layers[2].forward = nan: must be an integer"),
    (changed("layers.2.forward", True), "layers[2].forward = True: must be an integer"),
    (changed("layers.2.backward", -1), "layers[2].backward = -1: must be at least 0"),
    (changed("layers.0.activation", -5), "layers[0].activation = -5: must be at least 0"),
    (changed("layers.0.activation", "5 GB"), "layers[0].activation = '5 GB': must be an integer"),
    (changed("layers.0.weight_activation", 5), "layers[0].weight_activation = 5: must be at most activation, 0"),
    (changed("layers.0.recompute", {"full": 1}), "layers[0].recompute = {'full': 1}: must be a list of tables"),
    (again({}), "missing key 'name' in layers[1].recompute[0]"),
    (again(KIND | {"bytes": 1}), "bytes = 1: unknown key in layers[1].recompute[0]"),
    (again(KIND | {"name": 3}), "layers[1].recompute[0].name = 3: must be a text"),
    (again(KIND | {"ticks": -1}), "layers[1].recompute[0].ticks = -1: must be at least 0"),
    (again(KIND | {"ticks": 1.5}), "layers[1].recompute[0].ticks = 1.5: must be whole ticks; round it to 2"),
    (again(KIND | {"transient": -1}), "layers[1].recompute[0].transient = -1: must be at least 0"),
    (again(KIND | {"activation": 10}), "layers[1].recompute[0].activation = 10: must be at most the layer's activation, 9"),
    (again(KIND | {"weight_activation": 5}), "layers[1].recompute[0].weight_activation = 5: must be at most the layer's"),
    (again(KIND, KIND), "layers[1].recompute[1].name = 'full': is there twice in a layer"),
    (changed("layers.0.parameters", 1e9), "layers[0].parameters = 1000000000.0: must be an integer"),
    (changed("layers.0.name", 3), "layers[0].name = 3: must be a text"),
    (changed("layers.1.kind", "blocks"), "layers[1].kind = 'blocks': must be one of embedding, block, mtp, norm"),
    (changed("layers.1.kind", ["block"]), "layers[1].kind = ['block']: must be one of embedding, block, mtp"),
    (changed("layers.1.count", 0), "layers[1].count = 0: must be at least 1"),
    (changed("layers.1.count", 500), "layers[1].count = 500: makes 501 layers, a model has at most 500"),
    (changed("layers.1.count", 10**11), "a model has at most 500"),
    (changed("layers.1.count", 1, with_search(placements=["v"])), "layers = 3: must be at least 4 layers, one for each"),
    # the cluster
    (changed("cluster", [2]), "cluster = [2]: must be a table"),
    (changed("cluster", {}), "missing key 'devices' in cluster"),
    (with_cluster(memori=3), "memori = 3: unknown key in cluster"),
    (with_cluster(devices=0), "cluster.devices = 0: must be at least 1"),
    (with_cluster(devices="8"), "cluster.devices = '8': must be an integer"),
    (with_cluster(devices=2000), "cluster.devices = 2000: must be at most 1024"),
    (with_cluster(devices=[]), "cluster.devices = []: must be an integer, or a list of at least one"),
    (with_cluster(devices=[2, 2]), "cluster.devices = [2, 2]: must be an integer, or a list of at least one"),
    (with_cluster(devices=[2, -1]), "cluster.devices[1] = -1: must be at least 1"),
    (with_cluster(memory="80 gigs"), "cluster.memory = '80 gigs': unknown unit gigs; known are kB, MB, GB"),
    (with_cluster(memory="80 gb"), "cluster.memory = '80 gb': unknown unit gb"),
    (with_cluster(memory="80"), "cluster.memory = '80': must be bytes, or a text of a number and one of kB"),
    (with_cluster(memory="9" * 5000 + " GB"), "must be bytes, or a text of a number and one of kB"),
    (with_cluster(memory="-80 GB"), "cluster.memory = '-80 GB': must be from 1 to 1000000000000 bytes"),
    (with_cluster(memory="2 TB"), "cluster.memory = '2 TB': must be from 1 to 1000000000000 bytes"),
    (with_cluster(memory=-1), "cluster.memory = -1: must be at least 1"),
    (with_cluster(memory=8e10), "cluster.memory = 80000000000.0: must be an integer"),
    (with_cluster(memory=[1, 2, 3]), "cluster.memory = [1, 2, 3]: has 3 entries, must have one per device: 2"),
    (with_cluster(memory=[1, "x"]), "cluster.memory[1] = 'x': must be bytes"),
    (with_cluster(devices=[2, 4], memory=[1, 2]), "cluster.memory = [1, 2]: entries for each device need one"),
    (with_cluster(memory="4 GB", reserve="6 GB"), "cluster.reserve = '6 GB': must be less than the memory"),
    (with_cluster(memory=[9, 4], reserve=4), "cluster.reserve = 4: must be less than the memory of each device, 4"),
    (with_cluster(reserve=-1), "cluster.reserve = -1: must be at least 0"),
    (with_cluster(bytes_per_parameter=-2), "cluster.bytes_per_parameter = -2: must be from 0 to"),
    (with_cluster(bytes_per_parameter="18"), "cluster.bytes_per_parameter = '18': must be a number"),
    (with_cluster(bytes_per_parameter=float("inf")), "cluster.bytes_per_parameter = inf: must be from 0 to"),
    (with_cluster(bytes_per_parameter={"shard": 1}), "shard = 1: unknown key in cluster.bytes_per_parameter"),
    (with_cluster(bytes_per_parameter={"sharded": "1"}), "cluster.bytes_per_parameter.sharded = '1': must be a"),
    # communication
    (with_cluster(comm=1.5), "cluster.comm = 1.5: must be whole ticks; round it to 2"),
    (with_cluster(comm=-1), "cluster.comm = -1: must be at least 0"),
    (with_cluster(comm="120"), "cluster.comm = '120': must be an integer"),
    (with_cluster(comm=[[0, 1]]), "cluster.comm = [[0, 1]]: has 1 rows, must have one per device: 2"),
    (with_cluster(comm=[[0, 1], [2]]), "cluster.comm[1] = [2]: has 1 entries, must have one per device: 2"),
    (with_cluster(comm=[[0, 1], 3]), "cluster.comm[1] = 3: must be a row of 2 integers"),
    (with_cluster(comm=[[0, 1], [2, 3]]), "cluster.comm[1][1] = 3: must be 0"),
    (with_cluster(comm=[[0, 1.5], [2, 0]]), "cluster.comm[0][1] = 1.5: must be whole ticks; round it to 2"),
    (with_cluster(devices=[2, 3], comm=[[0, 1], [2, 0]]), "cluster.comm = [[0, 1], [2, 0]]: entries for each"),
    (with_cluster(comm=3, bandwidth=4), "cluster.comm = 3: contradicts cluster.bandwidth"),
    (with_cluster(latency=3), "cluster.latency = 3: needs cluster.bandwidth beside it"),
    (with_cluster(node_size=2), "cluster.node_size = 2: needs cluster.bandwidth beside it"),
    (with_cluster(**LINKS, node_latency=2), "cluster.node_latency = 2: needs cluster.node_size beside it"),
    (with_cluster(**LINKS, node_size=2), "cluster.node_size = 2: needs cluster.node_bandwidth beside it"),
    (with_cluster(**NODES | {"node_size": 0}), "cluster.node_size = 0: must be at least 1"),
    (with_cluster(**LINKS | {"bandwidth": 0}), "cluster.bandwidth = 0: must be above 0"),
    (with_cluster(**LINKS | {"bandwidth": "4"}), "cluster.bandwidth = '4': must be a number"),
    (with_cluster(**LINKS | {"latency": float("nan")}), "cluster.latency = nan: must be from 0 to"),
    (
        changed("layers.1", {"forward": 1, "backward": 1, "weight": 1, "count": 6}, with_cluster(**LINKS)),
        "cluster.bandwidth = 4: needs the output bytes of each layer but the last; layer 1 (layer) has none",
    ),
    # the batch
    (changed("batch", 4), "batch = 4: must be a table"),
    (with_batch(), "missing key 'microbatches' in batch"),
    (with_batch(microbatches=0), "batch.microbatches = 0: must be at least 1"),
    (with_batch(microbatches="4"), "batch.microbatches = '4': must be an integer"),
    (with_batch(microbatches=4, size=2), "size = 2: unknown key in batch"),
    (with_batch(microbatches=250_000), "batch.microbatches = 250000: at most 1000000 operations"),
    (with_batch(microbatches=10**7), "batch.microbatches = 10000000: must be at most 1000000"),
    (with_batch(global_batch=96), "batch.global_batch = 96: needs batch.microbatch_size beside it"),
    (with_batch(microbatches=4, sequence_length=9), "batch.sequence_length = 9: needs batch.microbatch_size"),
    (
        with_batch(global_batch=97, microbatch_size=2, data_parallel=4),
        "batch.global_batch = 97: must be a multiple of microbatch_size x data_parallel, 8",
    ),
    (
        with_batch(global_batch=96, microbatch_size=2, data_parallel=4, microbatches=13),
        "batch.microbatches = 13: contradicts the other keys: global_batch / (microbatch_size x data_parallel) is 12",
    ),
    # the search space
    (with_search(placement="v"), "placement = 'v': unknown key in search"),
    (with_search(placements="v"), "search.placements = 'v': must be a list of linear, v"),
    (with_search(placements=[]), "search.placements = []: must be a list of linear, v"),
    (with_search(placements=["v", "w"]), "search.placements[1] = 'w': must be one of linear, v"),
    (with_search(placements=["v", ["v"]]), "search.placements[1] = ['v']: must be one of linear, v"),
    (with_search(placements=["v", "v"]), "search.placements = ['v', 'v']: must have each name once"),
    (with_search(chunks=[0]), "search.chunks[0] = 0: must be at least 1"),
    (with_search(chunks=[]), "search.chunks = []: must be an integer, or a list of at least one"),
    (with_search(chunks=["2"]), "search.chunks[0] = '2': must be an integer"),
    (with_search(placements=["v", "wave"], chunks=[2, 3]), "search.chunks = 3: no placement of v, wave allows"),
    (with_search(placements=["loop"], chunks=[9]), "layers = 8: must be at least 18 layers, one for each"),
    (with_search(recompute="full"), "search.recompute = 'full': must be a list of kinds of recomputation"),
    (with_search(recompute=[True]), "search.recompute = [True]: must be a list of kinds of recomputation"),
    (with_search(recompute=["full"]), "search.recompute[0] = 'full': no layer lists a kind of recomputation"),
    (again(KIND, recompute=["half"]), "search.recompute[0] = 'half': must be one of full"),
    (again(KIND, recompute=["full"] * 2), "search.recompute = ['full', 'full']: must have each name once"),
    (with_search(objective="speed"), "search.objective = 'speed': must be one of device_span, makespan"),
    (
        changed("cluster.devices", 3, with_search(placements=["bidirectional"])),
        "search.placements = ['bidirectional']: must not hold bidirectional: its devices have the stages of two",
    ),
    (
        changed("batch.microbatches", 3, with_search(placements=["v", "bidirectional"])),
        "search.placements = ['v', 'bidirectional']: must not hold bidirectional",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("data", "message"), BAD, ids=[message[:50] for _, message in BAD])
def test_bad_input_is_one_clear_line(data: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as raised:
        problem_from_dict(data)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


DECIMALS = st.integers(0, 10**6).map(lambda n: Fraction(n, 1000))
ABOVE_0 = st.integers(1, 10**6).map(lambda n: Fraction(n, 1000))
BYTES = st.integers(0, 10**9)
MAYBE_BYTES = st.none() | BYTES


@st.composite
def recomputations(draw: st.DrawFn, activation: int, needed: int) -> tuple[Recomputation, ...]:
    names = draw(st.lists(st.sampled_from(["selective", "full", "\u00fc"]), unique=True, max_size=2))
    some, late = st.integers(0, activation), st.none() | st.integers(0, needed)
    return tuple(Recomputation(n, draw(BYTES), draw(some), draw(late), draw(MAYBE_BYTES)) for n in names)


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    activation = draw(BYTES)
    needed = draw(st.integers(0, activation))
    return Layer(
        draw(st.sampled_from(["block", "head", "Kopf \u2013 \u00fc"])),
        *(draw(st.integers(1, 1000)) for _ in range(3)),
        activation,
        needed,
        draw(recomputations(activation, needed)),
        draw(BYTES),
        draw(BYTES),
        draw(st.none() | st.sampled_from(["embedding", "block", "mtp", "norm", "head", "loss"])),
    )


@st.composite
def problems(draw: st.DrawFn) -> PlanningProblem:
    p = draw(st.integers(1, 3))
    counted = draw(st.lists(st.tuples(layers(), st.integers(1, 20)), min_size=1, max_size=4))
    model = [layer for layer, count in counted for _ in range(count)]
    matrix = tuple(tuple(0 if a == b else draw(st.integers(0, 99)) for b in range(p)) for a in range(p))
    networks = st.builds(Network, DECIMALS, ABOVE_0) | st.builds(
        Network, DECIMALS, ABOVE_0, st.integers(1, 8), DECIMALS, ABOVE_0
    )
    data_parallel = draw(st.integers(1, 9))
    return PlanningProblem(
        Model((*model, *model[-1:] * 12)),  # enough for every placement
        Cluster(
            (p,),
            draw(st.none() | st.integers(2, 10**12) | st.tuples(*[st.integers(2, 10**12)] * p)),
            draw(st.integers(0, 1)),
            draw(DECIMALS) + draw(DECIMALS) / data_parallel,
            draw(st.integers(0, 99) | st.just(matrix) | networks),
        ),
        Batch(draw(st.integers(1, 40)), draw(st.none() | st.integers(1, 10**6)), data_parallel),
        SearchSpace(
            draw(st.sampled_from([("v", "linear", "loop", "wave"), ("loop",), ("wave", "v")])),
            draw(st.none() | st.just((2,)) | st.just((2, 4))) if p < 3 else None,
            draw(st.sampled_from([(), Model(tuple(model)).kinds])),
            draw(st.sampled_from(list(Objective))),
        ),
        Tick(draw(ABOVE_0), draw(st.sampled_from(list(SECONDS)))),
    )


@given(problems())
def test_problems_survive_a_file(problem: PlanningProblem) -> None:
    assert problem_from_dict(json.loads(json.dumps(problem_to_dict(problem)))) == problem


def test_what_slices_have_in_common_survives_a_file() -> None:
    problem = problem_from_dict(with_search(equal=["tokens"]))
    assert problem.space.equal == ("tokens",)
    assert problem_from_dict(problem_to_dict(problem)) == problem


def test_a_law_in_a_kind_of_recomputation_makes_the_model_one_of_laws() -> None:
    data = again(KIND | {"ticks": {"tokens": 2}}) | {
        "batch": {"microbatches": 4, "microbatch_size": 1, "sequence_length": 10}
    }
    problem = problem_from_dict(data)
    assert problem.model.layers[1].recompute[0].ticks == 20
    with pytest.raises(InputError, match=r"layers\[1\].recompute\[0\].name = '': must be a text"):
        problem_from_dict(again(KIND | {"name": "", "ticks": {"tokens": 2}}))


FULL: dict[str, Any] = {
    "layers": [
        {
            **table,
            "kind": "block",
            "activation": 9,
            "weight_activation": 3,
            "recompute": [{**KIND, "weight_activation": 1, "transient": 3}],
            "parameters": 7,
            "output": 8,
        }
        for table in SMALL["layers"]
    ],
    "cluster": {
        **NODES,
        "devices": [2, 3],
        "memory": "4 GB",
        "reserve": 5,
        "bytes_per_parameter": {"replicated": 6, "sharded": 12, "gathered": 2},
        "sharding": "parameters",
        "resident": 2,
    },
    "batch": {"global_batch": 16, "microbatch_size": 2, "data_parallel": 2, "sequence_length": 9},
    "search": {"placements": ["v", "loop"], "chunks": [1, 2], "recompute": ["full"], "objective": "makespan"},
}
ODD = (
    st.none()
    | st.booleans()
    | st.integers(-3, 10**13)
    | st.floats()
    | st.text(max_size=9)
    | st.sampled_from([10**400, -(10**400), datetime.date(2020, 1, 1), "1 GB", "9" * 400 + " GB"])
)
VALUES = st.recursive(
    ODD, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2)
)


def places(data: Any, way: str = "") -> list[str]:
    """The paths of all entries of a file's content, as `changed` takes them."""
    entries = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    found = [(f"{way}.{key}".strip("."), entry) for key, entry in entries]
    return [path for path, _ in found] + [deeper for path, entry in found for deeper in places(entry, path)]


def read_or_refused(data: dict[str, Any]) -> PlanningProblem | str:
    try:
        return problem_from_dict(data)
    except InputError as error:
        return str(error)


SLICED: dict[str, Any] = {
    **FULL,
    "layers": [
        {**table, "forward": {"fixed": 2, "tokens": 0.5, "squares": 0.25}, "activation": {"tokens": 9}}
        for table in FULL["layers"]
    ],
    "search": {**FULL["search"], "slices": [1, 3], "equal": ["tokens", "all"]},
}
SAMPLED: dict[str, Any] = {
    **SLICED,
    "batch": {
        "lengths": {"median": 9, "sigma": 0.5, "most": 40},
        "sequences": 5,
        "tokens": 40,
        "steps": 2,
        "seed": 1,
        "data_parallel": 2,
    },
    "search": FULL["search"],
}
FULL_FILES = (FULL, SLICED, SAMPLED)
WHOLE = [(data, place) for data in FULL_FILES for place in places(data)]


def test_files_with_every_key_are_read() -> None:
    assert problem_from_dict(FULL).batch == Batch(4, 18, 2, 2)
    assert [len(slices) for slices in problem_from_dict(SLICED).slicings] == [0, 3, 3]
    assert problem_from_dict(SAMPLED).batch.sampling is not None


@given(st.sampled_from(WHOLE), VALUES)
def test_any_value_anywhere_is_read_or_refused_in_one_line(
    entry: tuple[dict[str, Any], str], value: Any
) -> None:
    data, place = entry
    answer = read_or_refused(changed(place, value, data))
    if isinstance(answer, str):
        assert len(answer.splitlines()) == 1
    else:
        assert problem_from_dict(problem_to_dict(answer)) == answer
