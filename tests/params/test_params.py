"""Parameters of the searches: what they may be, where they are written, and that searches read them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path
from typing import Any

import pytest
from helpers.cases import uniform
from helpers.command_line import call
from helpers.every_command import command_of, commands
from helpers.small_models import random_problem

import tightpipe
from tightpipe import InputError, Memory, SolveParams, load_params, load_schedule, save_instance, solve
from tightpipe.params.parameters import Parameters, documented, summary_of
from tightpipe.params.search import AnnealParams
from tightpipe.params.solve_params import DEFAULTS, params_from_dict, params_to_toml

SEARCHES = dict(DEFAULTS.searches())
FIELDS = [(name, each.name) for name, parameters in SEARCHES.items() for each in fields(parameters)]
FEW_MOVES = params_from_dict({"anneal.moves_per_item": 50, "rules.share": 0})
INSTANCE = uniform(3, 6, (10, 14, 6), comm=1, memory=Memory(2, -1, -1, 9))


def test_the_written_defaults_are_read_as_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "params.toml"
    file.write_text(params_to_toml())
    assert load_params(file) == DEFAULTS == SolveParams()


def test_changed_parameters_are_read_as_they_were_written(tmp_path: Path) -> None:
    changed = params_from_dict({"anneal": {"rounds": [0.5, 0.5], "reach": 4}, "fold.periods": [2]})
    toml, flat = tmp_path / "params.toml", tmp_path / "params.json"
    toml.write_text(params_to_toml(changed))
    flat.write_text(json.dumps(changed.changed()))
    assert load_params(toml) == load_params(flat) == changed != DEFAULTS


def test_what_is_changed_is_named_and_nothing_else() -> None:
    assert DEFAULTS.changed() == {}
    assert params_from_dict({"anneal.rounds": [1], "best.few": 8}).changed() == {"anneal.rounds": [1.0]}


@pytest.mark.parametrize(("name", "field"), FIELDS, ids=".".join)
def test_every_parameter_is_documented(name: str, field: str) -> None:
    kind = type(SEARCHES[name])
    assert documented(kind)[field]
    assert set(documented(kind)) == {each.name for each in fields(kind)}
    assert summary_of(kind)


def test_every_search_is_documented() -> None:
    assert set(documented(SolveParams)) == set(SEARCHES)  # type: ignore[arg-type]


def outside(parameters: Parameters, field: str) -> Any:
    """A value just outside the range of a field."""
    allowed = next(each for each in fields(parameters) if each.name == field).metadata["range"]
    value: Any = allowed.least if allowed.above else allowed.least - 1
    for length in reversed(allowed.lengths):
        value = [value] * (length or 1)
    return value


@pytest.mark.parametrize(("name", "field"), FIELDS, ids=".".join)
def test_a_value_out_of_range_is_refused_with_its_key(name: str, field: str, tmp_path: Path) -> None:
    file = tmp_path / "params.json"
    file.write_text(json.dumps({name: {field: outside(SEARCHES[name], field)}}))
    with pytest.raises(InputError) as caught:
        load_params(file)
    assert str(caught.value).startswith(f"{file}: {name}.{field}")
    assert "must be" in caught.value.rule


@pytest.mark.parametrize(
    ("data", "key", "rule"),
    [
        ({"anneal": {"reach": 2.5}}, "anneal.reach", "must be an integer from 1 to 1e+12"),
        ({"anneal": {"cold": 1e13}}, "anneal.cold", "must be a number from 0 to 1e+12"),
        ({"anneal": {"reach": True}}, "anneal.reach", "must be an integer from 1 to 1e+12"),
        ({"anneal": {"far": float("nan")}}, "anneal.far", "must be a number from 0 to 1"),
        ({"anneal": {"far": "much"}}, "anneal.far", "must be a number from 0 to 1"),
        ({"anneal": {"rounds": []}}, "anneal.rounds", "must be a list"),
        ({"anneal": {"rounds": 0.5}}, "anneal.rounds", "must be a list"),
        ({"anneal": {"rounds": [0.5, 2]}}, "anneal.rounds[1]", "must be a number above 0 to 1"),
        ({"anneal": {"rounds": [0.9, 0.9]}}, "anneal.rounds", "at most 1 in sum"),
        ({"rules": {"smallest": 3}}, "rules.smallest", "must be at most largest = 2"),
        ({"sides": {"least": 0.6, "half": 0.9}}, "sides.least", "must be at most 0.5"),
        ({"anneal": {"raech": 3}}, "anneal.raech", "unknown parameter; known are rounds, "),
        ({"aneal": {"reach": 3}}, "aneal", "no search has this name; known are best, "),
        ({"anneal": 3}, "anneal", "must be a table"),
        ([], "", "must be a table"),
    ],
)  # fmt: skip
def test_bad_parameters_are_refused_in_one_line(data: Any, key: str, rule: str, tmp_path: Path) -> None:
    file = tmp_path / "params.json"
    file.write_text(json.dumps(data))
    with pytest.raises(InputError) as caught:
        load_params(file)
    assert caught.value.key == key
    assert rule in caught.value.rule
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)


def test_parameters_are_checked_where_they_are_made_and_then_stay() -> None:
    with pytest.raises(InputError, match=r"reach = 0: must be an integer from 1 to 1e\+12"):
        AnnealParams(reach=0)
    with pytest.raises(FrozenInstanceError):
        DEFAULTS.anneal.reach = 3  # type: ignore[misc]
    assert type(AnnealParams(warm=1).warm) is float  # compiled loops are made for floating-point numbers


def test_a_solve_takes_nothing_else_as_parameters() -> None:
    with pytest.raises(InputError, match=r"params = .*must be SolveParams"):
        solve(INSTANCE, "improve", params={"anneal.reach": 3})  # type: ignore[arg-type]


def read_while(action: Any, monkeypatch: pytest.MonkeyPatch) -> set[tuple[bool, str, str]]:
    """The parameters read while `action` runs: whether a default object was read, its search and field."""
    seen: set[tuple[bool, str, str]] = set()
    names = {id(parameters): name for name, parameters in DEFAULTS.searches()}
    kinds = {type(parameters): name for name, parameters in DEFAULTS.searches()}

    def read(self: Any, key: str) -> Any:
        value = object.__getattribute__(self, key)
        if not key.startswith("_"):
            seen.add((id(self) in names, kinds[type(self)], key))
        return value

    monkeypatch.setattr(Parameters, "__getattribute__", read, raising=False)
    action()
    monkeypatch.undo()
    return seen


def solved(method: str, **options: Any) -> Callable[[SolveParams], object]:
    instance = uniform(4, 8, (10, 20, 5), comm=1, memory=Memory(2, -1, -1, 9))
    return lambda params: solve(instance, method, workers=1, params=params, warm_start=None, **options)


def by_itself(method: str, placement: str) -> Callable[[SolveParams], object]:
    return lambda params: solve(uniform(4, 10, (10, 12, 8), placement=placement), method, params=params)


def bounded(params: SolveParams) -> object:
    instance = uniform(2, 6, (10, 20, 5), comm=1, placement="linear", memory=Memory(2, -1, -1, 3))
    return tightpipe.bound(instance, time_limit=3, workers=1, params=params)


def planned(params: SolveParams) -> object:
    return tightpipe.plan(random_problem(0), time_limit=1, workers=1, params=params)


READING: dict[str, tuple[Callable[[SolveParams], object], set[str]]] = {
    "improve": (solved("improve", effort=1.0), {"best", "sides", "rules", "anneal", "fold"}),
    "block": (solved("block", effort=1.0), {"blocks", "anneal"}),
    "best": (solved("best", effort=1.0), {"best", "sides", "beams", "prefixes", "windows"}),
    "cpsat": (solved("cpsat", effort=1.0), {"cpsat", "windows"}),
    "cpsat:plain": (solved("cpsat:plain", time_limit=1), {"cpsat"}),
    "milp": (solved("milp", time_limit=1), {"milp", "windows"}),
    "list": (solved("list"), {"list"}),
    "due-date": (solved("due-date"), {"due_date", "list"}),
    "v-adaptive": (solved("v-adaptive"), {"v_blocks"}),
    "modulo": (solved("modulo"), {"modulo"}),
    "v-half": (by_itself("v-half", "v"), {"v_blocks"}),
    "interleaved-1f1b": (by_itself("interleaved-1f1b", "loop"), {"interleaved"}),
    "bound": (bounded, {"bounds", "windows", "starts"}),
    "plan": (planned, {"plan", "starts"}),
}


@pytest.mark.parametrize("name", READING)
def test_a_search_reads_the_parameters_that_it_is_given_and_no_defaults(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    search, expected = READING[name]
    copies = SolveParams(**{each: replace(found) for each, found in DEFAULTS.searches()})  # type: ignore[arg-type]
    search(copies)  # what is imported on the way may read defaults
    seen = read_while(lambda: search(copies), monkeypatch)
    assert expected <= {read for _, read, _ in seen}
    assert {(read, key) for default, read, key in seen if default} == set()


@pytest.mark.parametrize(
    ("method", "change"),
    [
        ("list", {"list.rules": [[1, 0, 1, 1, 0, 1]]}),
        ("due-date", {"due_date.rules": [[0.1, 0.9, 0, 1]]}),
        ("v-adaptive", {"v_blocks.kept": 1, "v_blocks.passes": 0}),
        ("modulo", {"modulo.first_step": 1.0, "modulo.halvings": 0}),
    ],
)
def test_a_heuristic_follows_its_parameters(method: str, change: dict[str, Any]) -> None:
    instance = uniform(4, 11, (10, 17, 5), comm=3, memory=Memory(2, -1, -1, 12))
    changed = solve(instance, method, params=params_from_dict(change))
    assert changed.schedule is not None
    assert changed.cost > solve(instance, method).cost  # type: ignore[operator]
    assert list(changed.to_dict()["params"]) == list(change)


def test_fewer_moves_take_fewer_batches_and_the_result_says_so() -> None:
    few = solve(INSTANCE, "improve", time_limit=None, workers=1, warm_start=None, params=FEW_MOVES)
    assert few.params is FEW_MOVES
    assert few.to_dict()["params"] == {"rules.share": 0.0, "anneal.moves_per_item": 50}
    assert "params       rules.share = 0.0, anneal.moves_per_item = 50" in str(few).splitlines()
    assert "params" not in solve(INSTANCE, "list").to_dict()


def test_other_moves_find_another_schedule() -> None:
    asked = {"time_limit": None, "workers": 1, "warm_start": None}
    usual, again, other = (
        solve(INSTANCE, "improve", params=params, **asked).schedule  # type: ignore[arg-type]
        for params in (
            FEW_MOVES,
            replace(FEW_MOVES),
            replace(FEW_MOVES, anneal=AnnealParams(far=1.0, moves_per_item=50)),
        )
    )
    assert usual == again != other


def test_the_command_line_takes_a_file_of_parameters_and_records_what_they_change(tmp_path: Path) -> None:
    params, instance, schedule = (str(tmp_path / name) for name in ("params.toml", "i.json", "s.json"))
    Path(params).write_text("[anneal]\nmoves_per_item = 50\n")
    save_instance(INSTANCE, instance)
    shown = call("solve", instance, "--method", "improve", "--params", params, "-o", schedule, "--json")
    assert json.loads(shown.stdout)["params"] == {"anneal.moves_per_item": 50}
    assert load_schedule(schedule).params == {"anneal.moves_per_item": 50}
    bounds = call("bound", instance, "--time-limit", "0", "--params", params, "--json")
    assert json.loads(bounds.stdout)["params"] == {"anneal.moves_per_item": 50}


WITH_PARAMS = ("bound", "compare", "explain", "paper realistic", "plan", "solve")


def test_every_command_that_limits_the_time_of_a_search_takes_parameters() -> None:
    options = {name: {each.name for each in command_of(name).params} for name in commands()}
    limited = {name for name, known in options.items() if "time_limit" in known}
    given = {name for name, known in options.items() if "params" in known}
    assert limited == set(WITH_PARAMS) == given - {"methods"}  # methods shows them


@pytest.mark.parametrize("command", WITH_PARAMS)
def test_a_bad_file_of_parameters_ends_a_command_with_one_line(command: str, tmp_path: Path) -> None:
    params, instance = tmp_path / "params.toml", tmp_path / "i.json"
    params.write_text("[anneal]\nreach = 0\n")
    save_instance(INSTANCE, instance)
    files = [] if command == "paper realistic" else [str(instance)]
    failed = call(*command.split(), *files, "--params", str(params))
    assert failed.returncode == 2
    assert (
        failed.stderr.strip() == f"tightpipe: {params}: anneal.reach = 0: must be an integer from 1 to 1e+12"
    )


def test_the_command_methods_shows_parameters_that_can_be_fed_back() -> None:
    shown = call("methods", "--params").stdout
    assert params_from_dict(tomllib.loads(shown)) == DEFAULTS
    assert json.loads(call("methods", "--params", "--json").stdout).keys() == SEARCHES.keys()
    for each in shown.split("\n\n"):
        assert each.startswith("# ")
