"""The same model in several placements: stages joined and cut, layers dealt, backwards fused or split."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from statistics import median_low

import pytest
from experiments.sweeps import INSTANCE, rows_of, write_experiment
from helpers.cases import classed, instances, sliced, uniform
from helpers.command_line import call
from hypothesis import given
from hypothesis import strategies as st

from tightpipe import (
    InputError,
    Instance,
    Memory,
    MicrobatchClass,
    Offload,
    Placement,
    Step,
    retime,
    solve,
    validate,
)
from tightpipe.experiments.axes import parse_comm, parse_uneven
from tightpipe.experiments.experiment_file import load_experiment
from tightpipe.experiments.grid import tasks_of
from tightpipe.experiments.placing import Backwards, discounted, placed, restored, restricted, shown_order
from tightpipe.experiments.study import load_study, sweep
from tightpipe.experiments.task import Task
from tightpipe.model.instance_file import instance_from_dict
from tightpipe.model.metrics import cost, memory_of_1f1b, peak_of_1f1b
from tightpipe.model.operation import COMPUTES, OpKind
from tightpipe.settings import with_median_costs

V = Instance.uniform(
    devices=4, microbatches=8, placement="v", forward=[10, 11, 12, 13, 14, 15, 16, 17], backward=[20, 21] * 4,
    weight=[9, 8, 0, 7, 9, 8, 0, 7], fused=[25, 24] * 4, comm=3, objective="step",
    memory=Memory([7] * 8, [-4, -4, -7, -4] * 2, [-3, -3, 0, -3] * 2, 60),
    step=Step(ready=[0, 5, 1, 9, 2, 0, 4, 4], reduce=[1, 2, 3, 4, 5, 6, 7, 8], optimizer=2),
)  # fmt: skip
OTHERS = [
    *(Placement("linear", 4), Placement("loop", 4), Placement("loop", 4, 4), Placement("wave", 4)),
    *(Placement("linear", 4, 2), Placement("bidirectional", 4)),
]


def totals(instance: Instance) -> list[int]:
    """The time and the memory of all operations of a microbatch, by kind, and of its reductions."""
    stages = range(instance.stages)
    times = [sum(instance.duration(kind, s) for s in stages) for kind in COMPUTES]
    held = [sum(instance.memory_delta(kind, s) for s in stages) for kind in COMPUTES]
    return [*times, *held, 0 if instance.step is None else sum(instance.step.reduce)]  # type: ignore[arg-type]


@pytest.mark.parametrize("placement", OTHERS, ids=str)
def test_a_model_takes_the_same_work_memory_and_messages_in_every_placement(placement: Placement) -> None:
    other = placed(V, placement)
    assert other.placement == placement
    assert totals(other) == totals(V)
    assert other.memory is not None
    assert V.memory is not None
    assert other.memory.limit == V.memory.limit
    assert (other.costs.comm, other.objective, other.microbatches) == (V.costs.comm, V.objective, 8)
    assert memory_of_1f1b(other) == memory_of_1f1b(V)
    assert validate(other, solve(other, "list").schedule) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("placement", OTHERS, ids=str)
def test_what_may_leave_is_joined_and_cut_with_its_stage(placement: Placement) -> None:
    leaving = replace(V, offload=Offload(3, 6, 4, duplex=False))
    before, after = leaving.offload, placed(leaving, placement).offload
    for key in ("memory", "out", "back"):
        assert sum(getattr(after, key)) == sum(getattr(before, key))
    assert after is not None
    assert not after.duplex


@given(instances(), st.integers(2, 3))
def test_stages_that_were_cut_are_joined_to_what_they_were(instance: Instance, parts: int) -> None:
    chain = replace(
        instance,
        placement=Placement("linear", instance.devices, instance.placement.stages_per_device),
        costs=replace(instance.costs, overlapped=None),
        memory=instance.memory and replace(instance.memory, limit=None),
    )
    finer = Placement("linear", chain.devices, parts * chain.placement.stages_per_device)
    times = [chain.duration(kind, stage) for kind in COMPUTES for stage in range(chain.stages)]
    if any(0 < ticks < parts for ticks in times):
        with pytest.raises(InputError, match="cuts each stage into"):
            placed(chain, finer)
        return
    assert placed(placed(chain, finer), chain.placement) == chain


def test_a_joined_stage_is_ready_when_all_its_parts_are_and_reduces_all_of_them() -> None:
    step = placed(V, Placement("linear", 4)).step
    assert step is not None
    assert (step.ready, step.reduce, step.optimizer) == ((5, 9, 2, 4), (3, 7, 11, 15), (2, 2, 2, 2))


@pytest.mark.parametrize(
    ("instance", "placement", "rule"),
    [
        (V, Placement("loop", 4, 3), "has 12 stages: the 8 stages of the instance can be neither joined nor cut"),
        (replace(V, costs=replace(V.costs, overlapped=50)), Placement("linear", 4), "times of pairs hold for these"),
        (replace(V, costs=replace(V.costs, weight=1)), Placement("wave", 4), "cuts each stage into 2, and a W has"),
    ],
)  # fmt: skip
def test_what_would_be_another_model_is_refused(instance: Instance, placement: Placement, rule: str) -> None:
    with pytest.raises(InputError) as refused:
        placed(instance, placement)
    assert rule in str(refused.value)


@pytest.mark.parametrize("backwards", [Backwards.FUSED, Backwards.SPLIT])
@pytest.mark.parametrize("placement", ["v", "linear"])
@pytest.mark.parametrize("method", ["list", "best"])
def test_a_restricted_search_finds_what_costs_as_much_in_the_instance_itself(
    backwards: Backwards, placement: str, method: str
) -> None:
    wide = replace(placed(V, Placement(placement, 4)), microbatches=4)
    seen = restricted(wide, backwards)
    found = solve(seen, method, time_limit=1, workers=1).schedule
    assert found is not None
    order = restored(wide, found.order, backwards)
    schedule = retime(wide, order)
    assert validate(wide, schedule) == []
    assert cost(schedule) == cost(found)
    kinds = {(kind, stage) for kind, stage, _ in order.operations.tolist()}
    for stage in range(wide.stages):
        if wide.has(OpKind.BW, stage):
            assert ((OpKind.BW, stage) in kinds) == (backwards is Backwards.FUSED)
            assert ((OpKind.W, stage) in kinds) == (backwards is Backwards.SPLIT)
    assert cost(retime(seen, shown_order(order, backwards))) == cost(found)


def test_a_discount_is_rounded_exactly() -> None:
    found = discounted(V, Fraction("0.15"))
    for stage in range(V.stages):
        apart = V.duration(OpKind.B, stage) + V.duration(OpKind.W, stage)
        share = Fraction(85, 100) if V.has(OpKind.BW, stage) else 1
        assert found.duration(OpKind.BW, stage) == round(share * apart)


LAYERS = """\
microbatches = 8
forward = [4, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 12]
backward = [4, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 13]
weight = 8
comm = 1
memory = { forward = 2, backward = -1, weight = -1, limit = 16 }
"""


def planned(folder: Path, text: str, layers: str = LAYERS) -> list[Task]:
    (folder / "layers.toml").write_text(layers)
    path = write_experiment(folder, text)
    return tasks_of(load_experiment(path), path)


def test_layers_are_dealt_to_devices_and_joined_for_each_placement(tmp_path: Path) -> None:
    tasks = planned(
        tmp_path,
        'layers = ["layers.toml"]\ndevices = [2, 3]\nmethods = [{method = "1f1b", placement = "linear"}, '
        '{method = "interleaved-1f1b", placement = "loop", chunks = 2}, {method = "v-zb", placement = "v"}]\n',
    )
    assert [(t.row.p, t.row.placement, t.row.chunks, t.instance.stages) for t in tasks] == [
        (2, "linear", 1, 2), (2, "loop", 2, 4), (2, "v", 2, 4), (3, "linear", 1, 3), (3, "loop", 2, 6), (3, "v", 2, 6),
    ]  # fmt: skip
    assert len({tuple(totals(task.instance)) for task in tasks}) == 1
    assert {task.instance.memory_limit(0) for task in tasks} == {16}
    assert tasks[0].instance.costs.forward == (54, 62)


@pytest.mark.parametrize(
    ("layers", "text", "rule"),
    [
        (LAYERS, "devices = [5]", "devices = '5': does not fit layers: must be a number that divides the 12 layers"),
        (LAYERS, "", "devices = 'own': does not fit layers: must be a number that divides"),
        (f"{LAYERS}devices = 2\n", "devices = [2]", "devices = 2: unknown key"),
        (LAYERS.replace("limit = 16", "limit = [16, 8]"), "devices = [2]", "memory.limit = [16, 8]: must be one number"),
        (LAYERS.replace("weight = 8", "weight = [8, 8]"), "devices = [2]", "weight = [8, 8]: has 2 entries"),
    ],
)  # fmt: skip
def test_layers_that_fit_nothing_are_refused_in_one_line(
    layers: str, text: str, rule: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as refused:
        planned(tmp_path, f'layers = ["layers.toml"]\n{text}\nmethods = ["list"]\n', layers)
    assert rule in str(refused.value)
    assert "\n" not in str(refused.value)


def test_pairs_of_joined_stages_run_their_parts_in_turn() -> None:
    """A forward goes up through the parts of a stage, and a backward down."""
    m = pairs = [[10 * f + b + 20 for b in range(4)] for f in range(4)]
    instance = uniform(2, 4, (6, 5, 4), placement="linear", chunks=2, pairs=pairs)
    joined = placed(instance, Placement("linear", 2))
    assert joined.costs.pairs == (
        (m[0][1] + m[1][0], m[0][3] + m[1][2]),
        (m[2][1] + m[3][0], m[2][3] + m[3][2]),
    )
    assert placed(instance, Placement("loop", 2)).costs.pairs == instance.costs.pairs
    with pytest.raises(InputError, match="times of pairs hold for these"):
        placed(joined, Placement("v", 2))


EXPERTS = """
layers = 12
microbatches = 4
comm = 1
[experts]
forward = { attention = 30, dispatch = 20, experts = 30, combine = 20 }
backward = { attention = 30, dispatch = 20, experts = 30, combine = 20 }
weight = { attention = 30, dispatch = 0, experts = 30, combine = 0 }
"""


def test_layers_with_experts_have_the_times_of_their_pairs(tmp_path: Path) -> None:
    text = 'layers = ["layers.toml"]\ndevices = [2]\nmethods = ["list"]\n'
    (task,) = planned(tmp_path, text, EXPERTS)
    costs = task.instance.costs
    assert (costs.forward, costs.backward, costs.weight) == ((300,) * 4, (300,) * 4, (180,) * 4)
    assert costs.pairs == ((3 * 180,) * 4,) * 4
    assert task.instance.work(0) == 4 * 2 * 3 * 180


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("forward = 3\n" + EXPERTS, "forward = 3: unknown key"),
        (EXPERTS.replace("dispatch = 0, ", ""), "missing key 'dispatch' in experts.weight"),
        (
            EXPERTS.replace("dispatch = 0", "dispatch = -1"),
            "experts.weight.dispatch = -1: must be at least 0",
        ),
        (EXPERTS.replace("comm = 1", "pairs = [[1]]"), "pairs = [[1]]: unknown key"),
    ],
)
def test_layers_with_experts_of_another_form_are_refused_in_one_line(
    wrong: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as refused:
        planned(tmp_path, 'layers = ["layers.toml"]\ndevices = [2]\nmethods = ["list"]\n', wrong)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


EQUAL = """\
settings = ["toy-4x8"]
memory_of_1f1b = [0.5, 1]
discount = [0, 0.25]
objectives = ["makespan"]
time_limits = [0.5]
figure = "discount"
methods = [
  {name = "only fused", method = "1f1b", placement = "linear"},
  {name = "only fused", method = "list", placement = "linear", backwards = "fused"},
  {method = "list", placement = "v", backwards = "split"},
  {method = "list", placement = "loop", chunks = 4},
]
"""


def test_memory_is_equal_in_all_placements_of_a_grid(tmp_path: Path) -> None:
    tasks = planned(tmp_path, EQUAL)
    assert len(tasks) == 2 * 2 * 4
    for task in tasks:
        peak, factor = peak_of_1f1b(task.instance), float(task.row.memory.removesuffix(" of 1F1B"))
        assert {task.instance.memory_limit(d) for d in range(4)} == {int(factor * peak)}
        assert task.row.memory_of_1f1b == factor
        share = 1 - Fraction(task.row.discount)
        fused = sum(task.instance.duration(OpKind.BW, s) for s in range(task.instance.stages))
        apart = sum(task.instance.duration(k, s) for k in (1, 2) for s in range(task.instance.stages))
        assert abs(fused - share * apart) <= task.instance.stages  # rounded at each of the setting's stages
    assert len({task.row.memory_limit for task in tasks}) == 2
    assert {task.row.chunks for task in tasks} == {1, 2, 4}
    assert tasks[3].row.name == "list on loop x 4"


def test_a_grid_of_placements_becomes_one_table_and_one_figure(tmp_path: Path) -> None:
    path = write_experiment(tmp_path, EQUAL)
    done = call("sweep", path, "-o", tmp_path / "s")
    assert done.returncode == 0, done.stderr
    rows = load_study(tmp_path / "s").rows
    too_little = [row for row in rows if row.method == "1f1b" and row.memory == "0.5 of 1F1B"]
    assert len(too_little) == 2
    for row in rows:
        if row in too_little:
            assert row.cost is None
            assert row.reason is not None
            assert row.reason.startswith("1f1b needs a memory limit")
            continue
        schedule = load_study(tmp_path / "s").schedule(row)
        assert schedule is not None
        assert validate(schedule.instance, schedule) == []
        operations = schedule.order.operations[:, 0].tolist()
        assert row.splits == operations.count(OpKind.W)
        if row.backwards != "any":
            assert (row.splits == 0) == (row.backwards == "fused")
            assert row.backwards_bound is None or row.backwards_bound <= row.cost  # type: ignore[operator]
        assert row.bound <= row.cost  # type: ignore[operator]
    page = (tmp_path / "s/summary.md").read_text()
    head, _, *lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")]
    assert head[:3] == ["problem", "discount", "memory"]
    names = ["only fused", "list on v, only split", "list on loop x 4", "bound"]
    assert [name for name in head if name in names] == names
    assert len(lines) == 4
    for line in lines:
        rates = dict(zip(head, line, strict=True))
        here = [r for r in rows if (r.discount, r.memory) == (rates["discount"], rates["memory"])]
        work = min(row.work for row in here if row.work is not None)
        for name in names[:-1]:
            least = min(row.cost for row in here if row.name == name and row.cost is not None)
            assert float(rates[name].rstrip("*")) == pytest.approx((least - work) / least, abs=1e-4)
            assert float(rates["bound"]) <= float(rates[name].rstrip("*"))
    assert "only fused: 1f1b needs a memory limit of at least" in page
    assert (tmp_path / "s/discount.png").read_bytes().startswith(b"\x89PNG")
    assert "max width=\\textwidth, max totalheight=" in (tmp_path / "s/table.tex").read_text()
    assert len(rows_of(tmp_path / "s")) == 16


MIXED = """\
settings = ["toy-4x8"]
discount = [0.4]
objectives = ["makespan"]
time_limits = [0.01]
methods = [
  {method = "improve", name = "mixed"},
  {method = "improve", name = "fused", backwards = "fused"},
  {method = "improve", name = "split", backwards = "split"},
]
"""


def test_a_search_among_all_backwards_is_never_worse_than_one_among_some(tmp_path: Path) -> None:
    mixed, fused, split = planned(tmp_path, MIXED)
    assert (mixed.row.warm_start, mixed.after) == ("best+fused+split", (fused.row.key, split.row.key))
    assert fused.after == split.after == ()
    study = sweep(load_experiment(tmp_path / "experiment.toml"), tmp_path / "s")
    found = {row.name: row.cost for row in study.rows}
    assert found["mixed"] <= min(found["fused"], found["split"])  # type: ignore[operator,type-var]
    assert "| mixed | fused | split |" in (tmp_path / "s/summary.md").read_text()


LEAVING = """\
settings = ["toy-4x8"]
offload = [{k = 0.5}, {k = 2, share = 0.5, duplex = false}]
memory_of_1f1b = [0.5]
objectives = ["makespan"]
time_limits = [0.3]
figure = "equal-memory"
methods = [
  {method = "improve", name = "without", copies = "none"},
  {method = "list:pipe-offload", placement = "v"},
  {method = "improve", name = "with"},
]
"""


def test_a_grid_says_what_may_leave_and_how_long_copies_take(tmp_path: Path) -> None:
    tasks = planned(tmp_path, LEAVING)
    assert [task.row.offload for task in tasks] == ["k 0.5"] * 3 + ["k 2 share 0.5 one engine"] * 3
    assert [(task.row.copies, task.row.warm_start) for task in tasks[:3]] == [
        ("none", "best"),
        ("any", None),
        ("any", "best+no copies"),
    ]
    for task, k, share in ((tasks[0], 0.5, 1), (tasks[5], 2, 0.5)):
        instance, offload = task.instance, task.instance.offload
        assert offload is not None
        assert offload.duplex == (share == 1)
        for stage in range(instance.stages):
            took = sum(instance.duration(kind, stage) for kind in (OpKind.F, OpKind.B, OpKind.W))
            assert instance.leaves(stage) == int(share * instance.memory_delta(OpKind.F, stage))
            assert offload.out == offload.back
            assert abs(instance.duration(OpKind.O, stage) - share * k / 2 * took) <= 0.5


def test_a_search_that_may_copy_is_never_worse_than_one_that_may_not(tmp_path: Path) -> None:
    path = write_experiment(tmp_path, LEAVING)
    study = sweep(load_experiment(path), tmp_path / "s")
    assert {row.state for row in study.rows} == {"done"}
    for without, _, found in (study.rows[:3], study.rows[3:]):
        resident, copied = study.schedule(without), study.schedule(found)
        assert resident is not None
        assert copied is not None
        assert not resident.order.has_copies
        for schedule in (resident, copied):
            assert schedule.instance.offload is not None
            assert validate(schedule.instance, schedule) == []
        assert found.cost <= without.cost  # type: ignore[operator]
        assert without.bound <= found.cost  # type: ignore[operator]  # it holds with copies too
        assert without.bound <= without.backwards_bound <= without.cost  # type: ignore[operator]
    assert (tmp_path / "s/equal-memory.csv").read_text().count("offload k 2 share 0.5 one engine") == 3
    assert "| offload |" in (tmp_path / "s/summary.md").read_text()


def test_a_search_follows_all_that_it_can_undercut_by_their_own_keys(tmp_path: Path) -> None:
    text = MIXED.replace('["makespan"]', '["device_span", "makespan"]')
    tasks = planned(tmp_path, text)
    by_key = {task.row.key: task.row for task in tasks}
    followed = {
        (task.row.name, task.row.objective): {(by_key[k].name, by_key[k].objective) for k in task.after}
        for task in tasks
    }
    apart = {("fused", "makespan"), ("split", "makespan")}
    assert followed["mixed", "makespan"] == apart
    assert followed["mixed", "device_span"] == {
        *((name, "device_span") for name in ("fused", "split")), ("mixed", "makespan"),
    }  # fmt: skip
    assert followed["fused", "device_span"] == {("fused", "makespan")}
    assert followed["fused", "makespan"] == set()


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('methods = [{placement = "v"}]', ":1: methods = {'placement': 'v'}: missing key 'method'"),
        ('methods = [{method = "list", placement = "spiral"}]', "placement = 'spiral' must be one of linear, v"),
        ('methods = [{method = "list", backwards = "half"}]', "backwards = 'half' must be one of any, fused, split"),
        ('methods = [{method = "list", chunks = 0}]', "must be at least 1"),
        ('methods = [{method = "list", placement = "v", chunks = 3}]', ":1: methods = 'list': does not fit small: placement = 'v': takes 2"),
        ('methods = [{method = "1f1b", placement = "v"}]', "methods = '1f1b': schedules placement linear; small has v"),
        ('methods = [{method = "list", copies = "some"}]', "copies = 'some' must be one of any, none"),
        ('methods = ["list"]\noffload = [{k = 0}]', ":2: offload = {'k': 0}: k = 0 must be a number above 0"),
        ('methods = ["list"]\noffload = [{share = 0.5}]', "missing key 'k'"),
        ('methods = ["list"]\noffload = [{k = 1, share = 2}]', "share = 2 must be a number above 0, at most 1"),
        ('methods = ["list"]\noffload = [{k = 1, duplex = 1}]', "duplex = 1 must be true or false"),
        ('methods = ["list"]\noffload = ["all"]', ":2: offload = 'all': must be own, none or a table"),
        ('methods = ["list:offload"]', "must be one of arrival, longest-first"),
        ('methods = ["list"]\ndiscount = [1]', ":2: discount = 1: must be a number from 0 to below 1"),
        ('methods = ["list"]\nmemory_of_1f1b = [0]', ":2: memory_of_1f1b = 0: must be a number above 0"),
        ('methods = ["list"]\nbaseline = "best"', ":2: baseline = 'best': must be one of list"),
    ],
)  # fmt: skip
def test_a_wrong_method_or_axis_is_one_line(text: str, rule: str, tmp_path: Path) -> None:
    path = write_experiment(tmp_path, f'{text}\ninstances = ["small.json"]\n')
    with pytest.raises(InputError) as refused:
        tasks_of(load_experiment(path), path)
    assert rule in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_method_of_another_placement_solves_an_instance_file_joined(tmp_path: Path) -> None:
    two = {**INSTANCE, "placement": "v"}
    (tmp_path / "two.json").write_text(json.dumps(two))
    path = tmp_path / "e.toml"
    path.write_text('instances = ["two.json"]\nmethods = [{method = "1f1b", placement = "linear"}]\n')
    (task,) = tasks_of(load_experiment(path), path)
    instance = instance_from_dict(two)
    assert task.instance == placed(instance, Placement("linear", 2))
    assert task.instance.costs.forward == (20, 20)


def parts_of(instance: Instance, seed: int) -> list[Instance]:
    """The instance with classes, and with slices."""
    return [classed(instance, seed), sliced(instance, seed)]


def by_class(instance: Instance) -> list[tuple[tuple[int, ...], ...]]:
    """The times of F, B, W and BW of each unit, unit after unit."""
    return [instance.class_costs[instance.mb_class(unit)].duration for unit in range(instance.units)]


@given(instances(fused=True), st.integers(0, 9999))
def test_a_discount_and_only_split_backwards_hold_for_every_class_and_slice(
    instance: Instance, seed: int
) -> None:
    for whole in parts_of(instance, seed):
        cheaper, split = discounted(whole, Fraction(1, 5)), restricted(whole, Backwards.SPLIT)
        for before, less, apart in zip(by_class(whole), by_class(cheaper), by_class(split), strict=True):
            assert before[:3] == less[:3] == apart[:3]
            sums = [b + w for b, w in zip(*before[1:3], strict=True)]
            assert less[3] == tuple(max(1, round(Fraction(4, 5) * ticks)) for ticks in sums)
            assert apart[3] == tuple(sums)


@given(instances(fused=True), st.integers(0, 9999))
def test_only_fused_backwards_have_no_w_in_any_class_or_slice(instance: Instance, seed: int) -> None:
    for whole in parts_of(instance, seed):
        fused = restricted(whole, Backwards.FUSED)
        for before, after in zip(by_class(whole), by_class(fused), strict=True):
            assert after[1] == before[3]
            assert not any(after[2])


@given(instances(fused=True), st.integers(0, 9999))
def test_factors_and_medians_change_the_times_of_every_class_and_slice(instance: Instance, seed: int) -> None:
    for whole in parts_of(instance, seed):
        slow, even = parse_uneven({"last": 2}).apply(whole), with_median_costs(whole)
        for before, after, medians in zip(by_class(whole), by_class(slow), by_class(even), strict=True):
            for ticks, doubled, one in zip(before[:3], after[:3], medians[:3], strict=True):
                assert doubled == (*ticks[:-1], 2 * ticks[-1])
                assert one == (median_low(ticks),) * len(ticks)


def test_the_mean_forward_time_is_that_of_all_microbatches() -> None:
    classes = [MicrobatchClass(3), MicrobatchClass(1, forward=30)]
    instance = uniform(2, None, (10, 10, 8), placement="linear", classes=classes)
    assert parse_comm("0.2f").apply(instance).comm(0, 1) == 3
