"""The group of all commands; the module of a command is imported only when that command is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from ..base.errors import StoppedError
from ..base.interruption import exit_status, reason_of


class Stopped(click.ClickException):
    """A command has ended early; at a signal, click would print an empty line for a `KeyboardInterrupt`."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def stopped_by(stop: BaseException, kept: str = "") -> Stopped:
    """Return the error of a command that a signal ended; `kept` says what is kept, if that is known."""
    reason = reason_of(stop)
    return Stopped(f"{reason}; {kept}" if kept else reason, exit_status(reason))


KEPT = "what was finished is kept, the same command continues"
NOTHING_KEPT = "nothing was finished yet, the same command continues"


@contextmanager
def finished_work_kept(finished: Callable[[], bool]) -> Iterator[None]:
    """Say what is kept where a signal or a `StoppedError` ends the work within the `with` block."""
    try:
        yield
    except (KeyboardInterrupt, StoppedError) as stop:
        kept = KEPT if finished() else NOTHING_KEPT
        if isinstance(stop, StoppedError):
            raise Stopped(f"{stop}; {kept}", 1) from None
        raise stopped_by(stop, kept) from stop


Commands = Mapping[str, str]
"""The first sentence of the help of each command, by its name."""

_SOLVE: Commands = {
    "solve": "Solve the instance in the file INSTANCE (JSON or TOML).",
    "bound": "Print every lower bound of the cost of INSTANCE that applies, and the best.",
    "validate": "Check the schedule in the file SCHEDULE against every rule of the model.",
    "check": "Check the certificate in the file PROOF, and the schedule in SCHEDULE against its bound.",
    "explain": "Say where the schedule in the file SCHEDULE idles, what for, and what would help.",
    "methods": "List the methods with placement, memory and source.",
    "library": "Keep the best schedule and bound known of each instance of the library, and who found them.",
    "compile": "Compile all inner loops now, so that no later command waits for it.",
}
_PLAN: Commands = {
    "plan": "Cut the model in the file MODEL (TOML or JSON) into stages, place, recompute and schedule them.",
    "costs": "Write the costs that an instance or a model needs: measured or computed.",
}
_RUN: Commands = {
    "lower": "Lower the file SCHEDULE to a program with sends, receives and post-validation.",
    "program": "Replay programs, also under noise, reorder them, and import schedules.",
    "export": "Write the schedule in SCHEDULE for another program; it is checked before a byte is written.",
    "run": "Train a small model by the file SCHEDULE, a process per device, and compare with one process.",
    "measure": "Measure a pipeline's run by the TRACES of its processes: busy and idle time, bubble, costs.",
}
_STUDY: Commands = {
    "compare": "Compare methods on the papers' settings, or on own INSTANCES: one CSV row for each solve.",
    "sweep": "Run the grid of solves that the file EXPERIMENT (TOML) declares, each once.",
    "paper": "Make tables and figures like those of the papers.",
    "plot": "Draw the schedule files SCHEDULES; several share one time axis.",
    "report": "Write one HTML page about the study in the folder PATHS, or about the schedule files PATHS.",
}
SECTIONS = {
    "Solve and prove": _SOLVE,
    "Plan a model": _PLAN,
    "Run and measure": _RUN,
    "Experiments and papers": _STUDY,
}
"""The commands at the top, by what they are for."""

COSTS: Commands = {
    "profile": "Write an instance file from measured costs: of a transformer here, or a trace, log or table.",
    "model": "List the public models whose shapes are known, or write a model file for the one called NAME.",
}
PROGRAM: Commands = {
    "replay": "Run a program, or with --noise the orders of schedules and programs under random durations.",
    "overlap": "Reorder FILE so that communication hides behind computation.",
    "import": "Read the schedule in FILE, of another program, and write it as a schedule file.",
}
PAPER: Commands = {
    "table": "Print table NUMBER of the zero-bubble paper: published bubble rate, ours, difference.",
    "realistic": "Run greedy, CP-SAT, improve and best on the realistic instances, side by side with bounds.",
    "gallery": "Draw every schedule family at 4 devices and 8 microbatches on one page.",
}
MOVED = {
    name: f"{group} {name}"
    for group, commands in (("costs", COSTS), ("program", PROGRAM), ("paper", PAPER))
    for name in commands
}
"""The commands of groups, by the name that somebody may try at the top."""

_FILES = {
    "solving": ("solve", "bound", "validate", "check", "methods", "compile"),
    "explaining": ("explain",),
    "library": ("library",),
    "planning": ("plan",),
    "common": ("costs", "program", "paper"),
    "programs": ("lower", "replay", "overlap", "import"),
    "measuring": ("export", "run", "measure"),
    "comparing": ("compare", "table", "realistic", "gallery", "plot", "report"),
    "sweeping": ("sweep",),
    "costs": ("profile", "model"),
}
"""The commands of each file in this folder, by the file's name."""
FILE_OF = {name: file for file, names in _FILES.items() for name in names}


class HelpfulGroup(click.Group):
    """A group that shows its help if no command is given, and the commands that a mistyped name may mean."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments of the group; no arguments are the same as ``--help``."""
        asks = not args and not ctx.resilient_parsing
        return super().parse_args(ctx, ["--help"] if asks else args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name and the command that the arguments call, and what follows them."""
        name = args[0]
        mistyped = self.get_command(ctx, name) is None and not name.startswith("-")
        if mistyped and not ctx.resilient_parsing:
            near = self.meant(ctx, name)
            hint = f"did you mean {' or '.join(near)}?" if near else f"`{ctx.command_path} --help` lists all"
            ctx.fail(f"No such command {name!r}; {hint}")
        return super().resolve_command(ctx, args)

    def meant(self, ctx: click.Context, name: str) -> list[str]:
        """Return the commands that a mistyped name may mean."""
        return get_close_matches(name, self.list_commands(ctx))


class LazyGroup(HelpfulGroup):
    """A group whose commands register themselves when their module is imported."""

    group_class = HelpfulGroup

    def __init__(self, *, sections: Mapping[str, Commands], **attributes: Any) -> None:
        super().__init__(**attributes)
        self.sections = sections
        self.listed = {name: text for section in sections.values() for name, text in section.items()}

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; raise `Stopped` if a signal ends it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise stopped_by(stop) from stop

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, imported or not."""
        return list(self.listed)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a name after importing its module; None if no command has this name."""
        if cmd_name in self.listed:
            import_module(f".{FILE_OF[cmd_name]}", __package__)
        return super().get_command(ctx, cmd_name)

    def meant(self, ctx: click.Context, name: str) -> list[str]:
        """Return the commands that a mistyped name may mean; one of another group with its group."""
        return [MOVED[name]] if name in MOVED else super().meant(ctx, name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section without importing them."""
        width = max(map(len, self.listed))
        for title, section in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in section.items()])
