"""A valid call of each command on small files, for tests of what all commands have in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
from experiments.sweeps import write_experiment

from helpers.command_line import SMALL, call, write
from helpers.handmade_plans import CLUSTER, LAYERS, problem
from helpers.small_library import proof_of, schedule_of, small_library
from helpers.traces import write_kineto
from tightpipe.cli import cli
from tightpipe.planning import Batch, SearchSpace
from tightpipe.planning.problem_file import problem_to_dict

QUICK = "--time-limit 0.2 --workers 1"
CALLS = {
    "bound": f"instance.json {QUICK}",
    "check": "proof.json",
    "compare": "--settings toy-4x8 --methods greedy-v -o rows.csv",
    "costs model": "llama-3-8b",
    "costs profile": "--table costs.csv --devices 2 --microbatches 4 -o profiled.json",
    "explain": "schedule.json --no-relax",
    "export": "schedule.json --target csv -o -",
    "library check": "--library library small",
    "library list": "--library library",
    "library show": "--library library small",
    "library submit": "better.json --by somebody --library library",
    "lower": "schedule.json -o program.json",
    "measure": "rank0.json rank1.json",
    "methods": "",
    "paper gallery": "--only 1f1b -o -",
    "paper realistic": f"--settings recompute-4x8 -o realistic.csv {QUICK}",
    "paper table": "5 -o table.csv",
    "plan": f"model.json {QUICK}",
    "plot": "schedule.json --text",
    "program import": "schedule.csv --target csv --instance instance.json -o -",
    "program overlap": "schedule.json -o program.json",
    "program replay": "program.json",
    "report": "schedule.json --no-relax -o page.html",
    "solve": "instance.json --method greedy-v",
    "sweep": "experiment.toml -o results --at-once 1",
    "validate": "schedule.json",
}
"""Arguments by command; every call prints something. A command without an entry is called for its help."""

EXPERIMENT = 'instances = ["small.json"]\nmethods = ["v-half", "v-min"]\n'
COSTS = "stage,kind,time,memory\n" + "".join(
    f"{stage},{kind},5,{held}\n" for stage in range(4) for kind, held in zip("FBW", (4, -2, -2), strict=True)
)


def commands(group: click.Group = cli, before: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the name of every command, that of a command of a group with the group's name before it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*before, name))
        else:
            yield " ".join((*before, name))


def command_of(name: str) -> click.Command:
    """Return the command of this name, which `commands` yields."""
    found: click.Command = cli
    for word in name.split():
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), word) or found
    return found


def arguments(command: str) -> list[str]:
    """Return a valid call of the command, in a folder that `write_inputs` has filled."""
    return [*command.split(), *CALLS.get(command, "--help").split()]


def write_inputs(folder: Path) -> None:
    """Write all files that the calls read, among them the tables that `compare` and `realistic` extend."""
    space = SearchSpace(("v",), None, recompute=("full",))
    model = problem(LAYERS, replace(CLUSTER, devices=(2,)), Batch(4, 1024, 2), space)
    write(folder, SMALL)
    write(folder, schedule_of("greedy-v"), "schedule.json")
    write(folder, schedule_of("cpsat"), "better.json")
    write(folder, proof_of(244), "proof.json")
    write(folder, problem_to_dict(model), "model.json")
    write(folder, COSTS, "costs.csv")
    write_kineto(folder)
    small_library(folder / "library")
    write_experiment(folder, EXPERIMENT, "experiment.toml")
    for words in (
        "lower schedule.json -o program.json",
        "export schedule.json --target csv -o schedule.csv",
        "sweep experiment.toml -o results --at-once 1 --quiet",
        f"compare {CALLS['compare']}",  # the calls of the tests find their rows in the tables
        f"paper realistic {CALLS['paper realistic']}",
    ):
        done = call(*words.split(), cwd=folder)
        assert done.returncode == 0, done.stderr


def with_json(command: str) -> list[str]:
    """Return the call of the command with ``--json``; without, if the command has no such option."""
    has = any(parameter.name == "as_json" for parameter in command_of(command).params)
    return [*arguments(command), "--json"] if has else arguments(command)
