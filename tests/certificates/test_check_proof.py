"""The checker: what it verifies, and that no changed or broken proof of something false passes."""

from __future__ import annotations

import ast
import copy
import gzip
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from certificates.proofs import (
    Proven,
    content_of,
    proven_by_three_times,
    proven_optima,
    training_step,
    wide_instance,
)
from helpers.cases import mixed_order, serial_order
from helpers.clock import counted_time
from helpers.copied_cases import copied_case
from helpers.copies import offloading, order_with_copies
from helpers.copying import copying, copying_v
from helpers.independent_model import optimal_schedule
from helpers.schedules import schedules_of
from helpers.small_instances import small_instance
from model.test_validate import BREAKS

from tightpipe import (
    Certificate,
    Instance,
    Memory,
    MicrobatchSlice,
    Offload,
    Schedule,
    certify,
    retime,
    simulate,
    solve,
    validate,
)
from tightpipe.base.errors import InputError as OurInputError
from tightpipe.certificates import check_proof
from tightpipe.certificates.check_proof import CheckError, InputError, Problem, check, cost_of
from tightpipe.model.instance_file import instance_from_dict, instance_to_dict
from tightpipe.model.metrics import cost
from tightpipe.model.schedule_file import save_schedule, schedule_from_dict, schedule_to_dict
from tightpipe.settings import load_settings
from tightpipe.solver.bounds.formulas.copies import least_room

CHECKER = Path(check_proof.__file__)
MUTATIONS = 2000
_SHORT = 60  # steps: long proofs take long to check, and have no rules of their own


def test_it_is_one_short_file_without_imports_of_ours() -> None:
    text = CHECKER.read_text()
    imported = {
        name
        for node in ast.walk(ast.parse(text))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or "."]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= sys.stdlib_module_names
    assert len(text.splitlines()) <= 800


def test_it_runs_alone_in_an_empty_folder(tmp_path: Path) -> None:
    instance = load_settings()["6.2B-16x48"].instance()
    result = solve(instance, "greedy-v")
    certificate, schedule = result.certificate(), result.schedule
    assert certificate is not None
    assert schedule is not None
    certificate.save(tmp_path / "proof.json.gz")
    certificate.save(tmp_path / "proof.json")
    save_schedule(schedule, tmp_path / "schedule.json")
    (tmp_path / "check.py").write_bytes(CHECKER.read_bytes())
    for proof in ("proof.json", "proof.json.gz"):
        done = subprocess.run(
            [sys.executable, "-I", "-S", "check.py", proof, "schedule.json"],
            cwd=tmp_path, env={}, capture_output=True, text=True,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "verified: cost 3969197 is optimal\n"
    assert (tmp_path / "proof.json").stat().st_size < 2000


def test_it_verifies_optima_and_nothing_larger() -> None:
    for proven in proven_optima():
        assert check(proven.content) == f"verified: no schedule costs less than {proven.optimum}"
        with pytest.raises(CheckError):
            check({**proven.content, "bound": proven.optimum + 1})


def certified_quickly(instance: Instance, bound: int) -> Certificate:
    """Search for a proof that a few thousand looks at the clock suffice for, on any machine."""
    with counted_time(per_look=1e-4):
        return certify(instance, bound, time_limit=0.5)


def test_no_proof_is_found_of_what_is_false() -> None:
    for proven in proven_optima()[:10]:
        assert certified_quickly(proven.instance, proven.optimum + 1).trusted


def mutated(content: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """A copy in which a number, a name or a step of the proof, or a number of the instance, has changed."""
    changed = copy.deepcopy(content)
    steps = changed["proof"]["steps"]
    if steps and rng.random() < 0.3:
        _move_steps(steps, rng)
    else:
        place, key = rng.choice([*_numbers(changed)])
        old = place[key]
        place[key] = rng.choice((old + 1, old - 1, old + rng.randint(-9, 9), 2 * old, 0, -old))
    if rng.random() < 0.5:
        changed["bound"] += rng.choice((1, 1, 2, 5))
    return changed


def _move_steps(steps: list[Any], rng: random.Random) -> None:
    a, b = rng.randrange(len(steps)), rng.randrange(len(steps))
    change = rng.choice(("drop", "swap", "repeat", "rename"))
    if change == "drop":
        del steps[a]
    elif change == "swap":
        steps[a], steps[b] = steps[b], steps[a]
    elif change == "repeat":
        steps.insert(b, steps[a])
    else:
        steps[a][0] = rng.choice(list(check_proof.RULES))


def _numbers(part: Any) -> Iterator[tuple[Any, Any]]:
    """Yield where integers stand: a container and a key."""
    for key, value in part.items() if isinstance(part, dict) else enumerate(part):
        if isinstance(value, int) and not isinstance(value, bool):
            yield part, key
        elif isinstance(value, dict | list):
            yield from _numbers(value)


def assert_no_mutation_proves_something_false(
    seed: int, proofs: Sequence[Proven], schedules: Callable[[Instance], list[Schedule]]
) -> None:
    """Change certificates at random; no bound that is accepted is above the cost of a valid schedule."""
    rng, outcomes = random.Random(seed), {"accepted": 0, "rejected": 0, "bad input": 0}
    for _ in range(MUTATIONS):
        proven = rng.choice(proofs)
        changed = mutated(proven.content, rng)
        try:
            check(changed)
        except CheckError:
            outcomes["rejected"] += 1
        except InputError:
            outcomes["bad input"] += 1
        else:
            outcomes["accepted"] += 1
            assert changed["bound"] <= least_known(proven, changed, schedules)
    assert min(outcomes.values()) > 50  # each kind of answer was put to the test


def least_known(
    proven: Proven, changed: dict[str, Any], schedules: Callable[[Instance], list[Schedule]]
) -> int:
    """The optimum if the instance is the same, else the cost of the cheapest schedule at hand."""
    if changed["instance"] == proven.content["instance"]:
        return proven.optimum
    try:
        return min(map(cost, schedules(instance_from_dict(changed["instance"]))), default=sys.maxsize)
    except OurInputError:  # there is no schedule, as no activation fits into the memory
        return sys.maxsize


def test_no_mutation_proves_something_false() -> None:
    proofs = [proven for proven in proven_optima() if 0 < len(proven.content["proof"]["steps"]) < _SHORT]
    proofs += [proven_by_three_times()] * (len(proofs) // 5)
    assert_no_mutation_proves_something_false(7, proofs, lambda instance: schedules_of(instance, 0))


def proven_of(instance_of: Callable[[int], Instance], seeds: int) -> tuple[Proven, ...]:
    """Return the optima of the instances of the first seeds with their proofs, where one is found quickly."""
    found = []
    for seed in range(seeds):
        instance = instance_of(seed)
        least = cost(optimal_schedule(instance))
        certificate = certified_quickly(instance, least)
        if not certificate.trusted:
            found.append(Proven(instance, least, json.loads(json.dumps(certificate.to_dict()))))
    return tuple(found)


def assert_proven_and_nothing_larger(proven: tuple[Proven, ...]) -> None:
    for one in proven:
        schedule = schedule_to_dict(optimal_schedule(one.instance))
        assert check(one.content, schedule) == f"verified: cost {one.optimum} is optimal"
        with pytest.raises((CheckError, InputError)):
            check({**one.content, "bound": one.optimum + 1})
    for one in proven[::5]:
        assert certified_quickly(one.instance, one.optimum + 1).trusted


@cache
def proven_wide() -> tuple[Proven, ...]:
    """Optima of wide instances with their proofs, as far as one is found quickly."""
    return proven_of(wide_instance, 60)


def test_optima_of_wide_instances_are_proven_and_nothing_larger() -> None:
    """A W is missing, a stage has F's alone, microbatches differ: of each kind there are some."""
    proven = proven_wide()
    assert len(proven) >= 20
    assert sum(not one.instance.complete for one in proven) >= 8
    assert sum(one.instance.differ for one in proven) >= 8
    assert sum(one.instance.fusing_saves for one in proven) >= 5
    assert_proven_and_nothing_larger(proven)


def test_no_mutation_of_a_wide_instance_or_its_proof_proves_something_false() -> None:
    assert_no_mutation_proves_something_false(11, proven_wide(), wide_schedules)


def wide_schedules(instance: Instance) -> list[Schedule]:
    orders = [serial_order(instance), *(mixed_order(instance, seed) for seed in range(3))]
    schedules = [retime(instance, order) for order in orders]
    return [schedule for schedule in schedules if not validate(instance, schedule)]


SMALL = Instance.uniform(
    devices=2, microbatches=4, forward=10, backward=12, weight=8, comm=1, memory=Memory(2, -1, -1, 8)
)
OPTIMUM = 246


def argued(*steps: Any, bound: int = OPTIMUM, instance: Instance = SMALL, **proof: Any) -> dict[str, Any]:
    """A certificate of the small instance with these steps."""
    return {
        "format": check_proof.FORMAT,
        "instance": instance_to_dict(instance),
        "bound": bound,
        "proof": {"kind": "windows", "anchor": 0, "steps": list(steps), **proof},
    }


@cache
def small_proof() -> dict[str, Any]:
    return content_of(SMALL, OPTIMUM)


def test_the_small_instance_costs_that() -> None:
    assert solve(SMALL, "cpsat", workers=1).cost == OPTIMUM
    assert check(small_proof()) == f"verified: no schedule costs less than {OPTIMUM}"


NONE, ALL = [[0, 4, 0, 4]] * 4 + [[0, 8, 0, 8]], [[4, 4, 4, 4]] * 4 + [[8, 8, 8, 8]]
BROKEN = {
    "no steps at all": [],
    "steps that contradict nothing": [["walk", 0], ["walk", 3]],
    "an order that time does not force": [["order", 0, 9]],
    "an order that runs the wrong way": [["order", 9, 0], ["order", 0, 9]],
    "an operation that precedes itself": [["frame", 0], ["order", 0, 0]],
    "an operation that is supposed to precede itself": [["suppose", 0, 0, []]],
    "a chain through an order that is not known": [["chain", 4, 0, 9]],
    "a supposition that contradicts nothing": [["suppose", 0, 4, []]],
    "two suppositions that contradict nothing": [["suppose", 0, 5, []], ["suppose", 5, 0, []]],
    "predecessors that are not known": [["preceded", 0, [0, 0, 0, 0, 0]]],
    "followers that are not known": [["followed", 3, [0, 0, 0, 0, 0]]],
    "all work before the beginning": [["overload", 1, -9, NONE, -8, ALL]],
    "all work in no time": [["overload", 1, 0, NONE, 0, ALL]],
    "two times in the wrong sequence": [["overload", 0, 900, ALL, -900, NONE]],
    "time enough": [["overload", 0, -900, NONE, 900, ALL]],
    "progress with time enough": [["progress", 0, [-900, 0, 900], [NONE, NONE, ALL], [1, 1]]],
    "progress with times in the wrong sequence": [["progress", 0, [900, -900], [ALL, NONE], [1]]],
    "progress that goes back": [["progress", 0, [-900, 900], [NONE, ALL], [-1]]],
    "progress without any weight": [["progress", 0, [-900, 900], [NONE, ALL], [0]]],
    "progress at one time": [["progress", 0, [0], [NONE], []]],
    "progress in no time that is not shown": [["progress", 1, [-9, -9], [NONE, ALL], [1]]],
}


@pytest.mark.parametrize("steps", BROKEN.values(), ids=BROKEN.keys())
def test_a_true_bound_with_a_broken_argument_is_rejected(steps: list[Any]) -> None:
    with pytest.raises(CheckError):
        check(argued(*steps))


def test_most_steps_of_a_trimmed_proof_are_needed() -> None:
    """The others do work that some later step would do as well."""
    needed = spare = 0
    for proven in proven_optima():
        steps = proven.content["proof"]["steps"]
        for k in range(len(steps) if len(steps) < _SHORT else 0):
            fewer = {**proven.content["proof"], "steps": steps[:k] + steps[k + 1 :]}
            try:
                check({**proven.content, "proof": fewer})
                spare += 1
            except CheckError:
                needed += 1
    assert needed > 2 * spare


def test_three_times_prove_what_two_do_not() -> None:
    proven = proven_by_three_times()
    steps = proven.content["proof"]["steps"]
    assert steps[-1][0] == "progress"
    assert check(proven.content) == f"verified: no schedule costs less than {proven.optimum}"
    assert solve(proven.instance, "cpsat", workers=1).cost == proven.optimum
    name, device, times, counts, weights = steps[-1]
    for broken in (
        [name, device, times[:2], counts[:2], weights[:1]],
        [name, device, times, counts, [weights[0], 0]],
        [name, device, times, counts, weights[::-1]],
        [name, device, times, counts[::-1], weights],
        [name, device, [times[0] + 1, *times[1:]], counts, weights],
        [name, device, [times[0], times[1] - 1, times[2]], counts, weights],
        [name, device, [*times[:2], times[2] - 1], counts, weights],
        [name, 1 - device, times, counts, weights],
    ):
        with pytest.raises(CheckError):
            check({**proven.content, "proof": {**proven.content["proof"], "steps": [*steps[:-1], broken]}})
    for k in range(len(steps)):
        with pytest.raises(CheckError):
            check(
                {**proven.content, "proof": {**proven.content["proof"], "steps": steps[:k] + steps[k + 1 :]}}
            )


def test_whom_to_trust_is_no_proof() -> None:
    with pytest.raises(CheckError, match="246 rests on 'cp-sat', which has no proof here"):
        check(argued(kind="trusted", by="cp-sat"))


def test_operations_that_overlap_are_refused() -> None:
    paired = Instance.uniform(devices=2, microbatches=4, forward=9, backward=9, weight=9, overlapped=20)
    assert certify(paired, 300, time_limit=1).trusted
    with pytest.raises(CheckError, match="operations that overlap"):
        check(argued(["walk", 0], bound=300, instance=paired))


def test_fused_operations_are_checked_in_a_schedule_and_must_be_cut_in_a_proof() -> None:
    fused = Instance.uniform(devices=2, microbatches=4, forward=9, backward=9, weight=9, fused=14)
    result = solve(fused, "1f1b-v")
    assert result.schedule is not None
    devices = schedule_to_dict(result.schedule)["devices"]
    assert cost_of(Problem(instance_to_dict(fused)), devices) == result.cost
    with pytest.raises(CheckError, match="takes 14 ticks, not 18"):
        cost_of(Problem(instance_to_dict(fused) | {"fused": None}), devices)
    assert set(content_of(fused, fused.work(0))["proof"]) == {"kind", "anchor", "steps", "long"}
    with pytest.raises(CheckError, match="a fused BW is shorter than its B and W"):
        check(argued(["walk", 0], bound=160, instance=fused))


def test_an_instance_too_large_for_the_checker_has_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = instance_from_dict(small_proof()["instance"])
    assert not certify(instance, small_proof()["bound"], time_limit=60).trusted
    for limit in ("MOST_OPERATIONS", "MOST_ORDERS"):
        with monkeypatch.context() as smaller:
            smaller.setattr(check_proof, limit, 40)
            assert certify(instance, small_proof()["bound"], time_limit=60).trusted
            with pytest.raises(InputError, match=r"40 operations|too large for this checker"):
                check(small_proof())


def nested(depth: int) -> list[Any]:
    """Suppositions within suppositions, none of which is refuted at once."""
    return [["suppose", 0, 4, nested(depth - 1)]] if depth else []


WRONG = {
    "bound": (lambda d: d.update(bound="246"), "bound: must be an integer from 1 to .*, is '246'"),
    "format": (lambda d: d.update(format="tightpipe-proof-2"), "format: this checker reads"),
    "kind": (lambda d: d["proof"].update(kind="magic"), "proof: unknown kind 'magic'"),
    "key": (lambda d: d.update(more=1), "proof file: unknown or missing keys"),
    "missing": (lambda d: d.pop("instance"), "proof file: unknown or missing keys"),
    "rule": (lambda d: d["proof"]["steps"].insert(0, ["jump", 1]), "steps: unknown step"),
    "item": (lambda d: d["proof"]["steps"].insert(0, ["arrive", 10**9]), "steps: .* from 0 to 47"),
    "text": (lambda d: d["proof"]["steps"].insert(0, ["arrive", "3"]), "steps: .* is '3'"),
    "true": (lambda d: d["proof"]["steps"].insert(0, ["arrive", True]), "steps: .* is True"),
    "arguments": (lambda d: d["proof"]["steps"].insert(0, ["arrive"]), "steps: .* must have 1 arguments"),
    "steps": (lambda d: d["proof"].update(steps=7), "steps: must be a list"),
    "times": (lambda d: d["proof"]["steps"].insert(0, ["progress", 0, [1], [NONE], [1]]), "up to 16 times"),
    "many": (
        lambda d: d["proof"]["steps"].insert(0, ["progress", 0, [0] * 17, [NONE] * 17, [1] * 16]),
        "progress: up to 16 times, counts for each, and weights between them",
    ),
    "weights": (
        lambda d: d["proof"]["steps"].insert(0, ["progress", 0, [-9, 0], [NONE, NONE], [[1, 1]]]),
        "weights: must have 5 entries, has 2",
    ),
    "counts": (lambda d: d["proof"]["steps"].insert(0, ["overload", 0, 0, [], 1, []]), "counts: one row"),
    "inner": (lambda d: d["proof"]["steps"].insert(0, ["suppose", 0, 4, 3]), "steps: must be a list"),
    "deep": (
        lambda d: d["proof"].update(steps=nested(check_proof.MOST_DEPTH + 1)),
        "steps: suppositions are more than 100 deep",
    ),
    "anchor": (lambda d: d["proof"].update(anchor=2), "anchor: must be an integer from 0 to 1, is 2"),
    "instance": (lambda d: d["instance"].update(devices=0), "devices: must be an integer from 1 to 1024"),
    "huge": (lambda d: d["instance"].update(microbatches=10**6), "instance: more than 1000000 operations"),
    "comm": (lambda d: d["instance"].update(comm={}), "comm: must be an integer"),
    "chunks": (lambda d: d["instance"].update(chunks=0), "chunks: must be an integer from 1 to"),
    "memory": (lambda d: d["instance"].update(memory={}), "memory: unknown or missing keys"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG.keys())
def test_bad_input_is_one_line(change: Any, message: str) -> None:
    content = copy.deepcopy(small_proof())
    change(content)
    with pytest.raises(InputError, match=message):
        check(content)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[1, 2",
        b"\xff\xfe",
        b"[" * 100_000,
        b"{}",
        b"[]",
        b"null",
        gzip.compress(b"{", mtime=0)[:-4],
    ],
    ids=range(9),
)
def test_files_that_are_none(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / ("proof.json.gz" if content[:2] == b"\x1f\x8b" else "proof.json")
    path.write_bytes(content)
    assert check_proof.main([str(path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(("redirection", "status"), [("> /dev/full", 2), (">&-", 2), ("| true", 141)])
def test_a_line_that_nothing_takes_is_no_answer(redirection: str, status: int, tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    certificate = solve(load_settings()["6.2B-16x48"].instance(), "greedy-v").certificate()
    assert certificate is not None
    certificate.save(path)
    wait = "sleep 1; " if "|" in redirection else ""  # until the reader has gone
    command = f'({wait}exec "{sys.executable}" "{CHECKER}" "{path}") {redirection}'
    shell = ["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"]
    done = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert len(done.stderr.splitlines()) == (1 if status == 2 else 0)


def test_a_name_that_a_terminal_cannot_show_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_proof.main(["no\nfile\x1b[1m\udcff.json"]) == 2
    assert "no\\nfile\\x1b[1m\\udcff.json" in capsys.readouterr().err


def test_a_large_file_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_proof, "MOST_BYTES", 1000)
    path = tmp_path / "proof.json.gz"
    path.write_bytes(gzip.compress(b" " * 10**7))
    with pytest.raises(InputError, match="more than 1000 bytes"):
        check_proof.read(str(path))


def test_a_file_of_a_gigabyte_needs_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    with path.open("wb") as file:
        file.truncate(2**30)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", LIMITED, str(CHECKER), str(path)], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert f"more than {check_proof.MOST_BYTES} bytes" in done.stderr


LIMITED = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("step", [["walk", 0], ["arrive", 0], ["fill", 0, 1], ["suppose", 1, 0, []]], ids=str)
def test_the_work_of_a_file_is_limited(step: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [step] * 1000
    with pytest.raises(CheckError, match="no contradiction"):
        check(argued(*steps))
    monkeypatch.setattr(check_proof, "MOST_EFFORT", 1000)
    with pytest.raises(InputError, match="steps: too much work"):
        check(argued(*steps))


def entries(schedule: Schedule) -> Any:
    return json.loads(json.dumps(schedule_to_dict(schedule)["devices"]))


def accepts(instance: Instance, devices: Any, copies: Any = None) -> int | None:
    """The cost that the checker finds, None if it rejects the schedule."""
    try:
        return cost_of(Problem(instance_to_dict(instance)), devices, copies)
    except CheckError:
        return None


@pytest.mark.parametrize("rule", BREAKS)
def test_it_rejects_what_breaks_a_rule(rule: str) -> None:
    schedule = BREAKS[rule]()
    devices, slots = [], iter(zip(schedule.start.tolist(), schedule.end.tolist(), strict=True))
    for device in schedule.order.to_slots():
        times = [[next(slots) for _ in slot] for slot in device]
        devices.append(
            [["+".join(map(str, slot)), *time[0]] for slot, time in zip(device, times, strict=True)]
        )
    if rule == "overlap":  # a file cannot say that two operations which run together have different times
        devices = [[["F0.0+F0.1", 0, 8], ["BW0.0", 8, 16], ["BW0.1", 16, 24]]]
    refusals = {
        "not_before_zero": "start: must be an integer from 0",
        "slices": r"unknown or missing keys \['slices'\]",
    }
    if rule in refusals:
        with pytest.raises(InputError, match=refusals[rule]):
            accepts(schedule.instance, devices)
    else:
        assert accepts(schedule.instance, devices) is None


@pytest.mark.parametrize("seed", range(40))
def test_it_agrees_with_the_validator(seed: int) -> None:
    """On valid schedules, and on the same with one operation shifted."""
    instance, rng, faults = small_instance(seed), random.Random(seed), 0
    for schedule in schedules_of(instance, seed):
        assert accepts(instance, entries(schedule)) == cost(schedule)
        for _ in range(5):
            start, end, row = schedule.start.copy(), schedule.end.copy(), rng.randrange(len(schedule.order))
            by = rng.choice((-3, -2, -1, 1, 2, 3))
            start[row], end[row] = start[row] + by, end[row] + by
            data = schedule_to_dict(Schedule(instance, schedule.order, start, end))
            if start.min() >= 0:
                wrong = bool(validate(instance, schedule_from_dict(data).schedule))
                assert (accepts(instance, data["devices"]) is None) == wrong
                faults += wrong
    assert faults > 0


@pytest.mark.parametrize("seed", range(40))
def test_it_agrees_with_the_validator_about_copies(seed: int) -> None:
    """On schedules with copies, of which some find no memory, and on the same with something shifted."""
    make, rng = (offloading, copying)[seed % 2], random.Random(seed)
    instance, answers = make(wide_instance(seed), seed), set()
    for schedule in (retime(instance, order_with_copies(instance, seed + k, pairs=False)) for k in range(4)):
        for by in (0, 0, -2, -1, 1, 2):
            start, end, row = schedule.start.copy(), schedule.end.copy(), rng.randrange(len(schedule.order))
            start[row], end[row] = start[row] + by, end[row] + by * rng.randint(0, 1)
            if start.min() >= 0:
                data = schedule_to_dict(Schedule(instance, schedule.order, start, end))
                read = schedule_from_dict(data).schedule
                found = accepts(instance, data["devices"], data.get("copies"))
                assert found == (None if validate(instance, read) else cost(read))
                answers.add(found is None)
    assert True in answers


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("make_instance", [training_step, wide_instance])
def test_it_counts_what_a_training_step_costs(seed: int, make_instance: Callable[[int], Instance]) -> None:
    """Of schedules in which some backwards are fused, and some F's run together with a backward."""
    instance = make_instance(seed)
    orders = [mixed_order(instance, seed + k) for k in range(4)]
    read = 0
    for make in (simulate, retime):
        for schedule in (make(instance, order) for order in orders):
            wrong = bool(validate(instance, schedule))
            assert accepts(instance, entries(schedule)) == (None if wrong else cost(schedule))
            read += not wrong
    assert read or instance.memory is not None


def test_bounds_of_training_steps_with_fused_backwards_are_proven_and_nothing_above_the_optimum() -> None:
    proven = 0
    for seed in range(30):
        instance = training_step(seed)
        result = solve(instance, "list")
        certificate = certified_quickly(instance, result.bound)
        if not certificate.trusted:
            content = json.loads(json.dumps(certificate.to_dict()))
            proven += 1
            said = check(content, schedule_to_dict(result.schedule))
            assert said.startswith(f"verified: cost {result.cost} is ")
            with pytest.raises((CheckError, InputError)):
                check({**content, "bound": result.cost + 1})
        costs = [cost(schedule) for schedule in schedules_of(instance, seed)]
        assert certified_quickly(instance, min(costs) + 1).trusted
    assert proven >= 15


@cache
def proven_with_copies() -> tuple[Proven, ...]:
    """Optima of instances with copies and scarce memory, with their proofs, as far as one is found quickly."""
    return proven_of(copied_case, 40)


def test_optima_with_copies_are_proven_and_nothing_larger() -> None:
    proven = proven_with_copies()
    assert len(proven) >= 15
    assert_proven_and_nothing_larger(proven)


def test_no_mutation_of_an_instance_with_copies_or_its_proof_proves_something_false() -> None:
    proofs = [one for one in proven_with_copies() if 0 < len(one.content["proof"]["steps"]) < _SHORT]
    rooms = [one for one in proofs if one.content["proof"]["steps"][-1][0] == "room"]

    def schedules(instance: Instance) -> list[Schedule]:
        found = solve(instance, "list").schedule
        return [] if found is None else [found]

    assert_no_mutation_proves_something_false(8, proofs + rooms, schedules)


def test_what_its_copies_carry_leaves_room_for_less() -> None:
    """Two engines carry what one cannot; each bound is that of the formula, and no larger one follows."""
    for duplex in (True, False):
        instance = replace(copying_v(2, 12, 2, 9), objective="device_span", offload=Offload(2, 9, 9, duplex))
        bound = max(least_room(instance, device) for device in range(2))
        content = certify(instance, bound, time_limit=60).to_dict()
        assert content["proof"]["steps"][-1] in (["room", 0], ["room", 1])
        assert check(content) == f"verified: no schedule costs less than {bound}"
        with pytest.raises(CheckError, match="has room for what it holds"):
            check({**content, "bound": bound + 1})


def test_what_is_long_must_be_said_rightly() -> None:
    fused = Instance.uniform(devices=2, microbatches=4, forward=9, backward=9, weight=9, fused=14)
    for long, about in (
        ("F", fused),
        (None, fused),
        (1, fused),
        ("B", replace(fused, costs=replace(fused.costs, fused=1))),
    ):
        with pytest.raises(InputError, match="long: B or W, and no fused BW is a single tick"):
            check(argued(["walk", 0], bound=160, instance=about, long=long))


def test_an_operation_that_is_not_there_cannot_stand_for_one_that_is_missing() -> None:
    """A W of no ticks would take the place of a missing one in the number of operations."""
    instance = Instance.uniform(
        devices=2, microbatches=1, forward=9, backward=9, weight=[0, 9], placement="linear"
    )
    schedule = retime(instance, serial_order(instance))
    first, second = entries(schedule)
    assert accepts(instance, [first, second]) == cost(schedule)
    kept = [entry for entry in second if entry[0] != "W1.0"]
    with pytest.raises(CheckError, match=r"there is no W0\.0"):
        cost_of(Problem(instance_to_dict(instance)), [[*first, ["W0.0", 100, 100]], kept])


def test_a_schedule_of_another_instance_is_refused() -> None:
    other = solve(small_instance(3), "list").schedule
    assert other is not None
    with pytest.raises(InputError, match="schedule: has another instance than the proof"):
        check(small_proof(), schedule_to_dict(other))


def test_a_schedule_above_the_bound_has_a_gap() -> None:
    schedule = solve(SMALL, "1f1b-v").schedule
    assert schedule is not None
    said = check(small_proof(), schedule_to_dict(schedule))
    assert said.startswith(f"verified: cost {cost(schedule)} is within ")
    assert said.endswith(f"% of optimal, as no schedule costs less than {OPTIMUM}")


def test_slices_are_refused_by_name_and_their_bounds_are_trusted() -> None:
    instance = Instance.uniform(
        devices=2,
        microbatches=2,
        forward=3,
        backward=4,
        weight=2,
        placement="linear",
        slices=[MicrobatchSlice(), MicrobatchSlice(forward=5)],
    )
    found = certify(instance, 10, proof="work", time_limit=1)
    assert found.proof == {"kind": "trusted", "by": "work"}
    with pytest.raises(InputError, match=r"instance: unknown or missing keys \['slices'\]"):
        check(found.to_dict())


CLASSED = {"devices": 1, "placement": "linear", "forward": 3, "backward": 3, "weight": 3}


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"classes": []}, "classes: must be a list"),
        ({"classes": [{"forward": 3}]}, r"class: unknown or missing keys \['count'\]"),
        ({"classes": [{"count": 2}], "microbatches": 3}, "must be the sum of the counts of the classes"),
        ({"classes": [{"count": 2}], "iterations": 2}, "classes: not together with overlapped or iterations"),
        ({"classes": [{"count": 2, "memory": {}}]}, "the instance has none|missing keys"),
        ({"microbatches": 2, "backward": [3, 0], "placement": "v"}, "backward: must be at least 1 after"),
    ],
)
def test_bad_classes_and_absent_operations_are_named(entries: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Problem(CLASSED | entries)
