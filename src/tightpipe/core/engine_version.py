"""The engine is the code that finds schedules and proves bounds; results contain its name.

A version alone does not say which code made a result, because between two releases the code changes often.
So the name of an engine has the version and the last commit that changed the code of the engine. Results with
the same name come from the same code. A commit leaves the name as it is if it changes only documents and
figures, or if it says by a line ``Engine: unchanged`` of its message that it changes only comments and
docstrings in the sources of the engine. A test compares the code before and after each such commit.
"""

from __future__ import annotations

import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

SOURCES = (
    *(f"src/tightpipe/{room}" for room in ("core", "kernels", "noise", "settings", "solving")),
    *("heuristics", "solver"),
)
"""Folders of the repository whose files decide what a method finds and what a bound proves."""

SAME_CODE = "Engine: unchanged"
"""The line in the message of a commit that changes only comments and docstrings in the sources."""

_NAMING = "src/tightpipe/core/engine_version.py"  # this file, which only names the engine
_CHECKOUT = Path(__file__).resolve().parents[3]
_DIGITS = 7  # of a commit; fixed, because git itself shows more digits as a repository grows
_SECONDS = 20  # until a call of git is given up, e.g. on a network drive


@cache
def engine_version() -> str:
    """Return the name of the engine that this process runs, e.g. ``0.1.0+8442489``.

    ``.modified`` is appended if a source differs from that commit. Without a checkout, as in an installed
    wheel, and without git, the name is the version alone. Git is asked once per process.
    """
    return name_engine(version("tightpipe"), _CHECKOUT)


def name_engine(release: str, checkout: Path) -> str:
    """Return the name of the engine in a folder: its release and the last commit that changed its code.

    Parameters
    ----------
    release
        Version of the package, e.g. ``0.1.0``.
    checkout
        Folder of the repository. If it is no git checkout, the name is `release` alone.

    Returns
    -------
    str
        For example ``0.1.0+8442489``, or ``0.1.0+8442489.modified`` if a source differs from the last commit.
    """
    last = ("log", "-1", "--format=%H", "--invert-grep", f"--grep=^{SAME_CODE}$")
    commit = _git(checkout, *last) if (checkout / ".git").exists() else ""
    if not commit:
        return release
    modified = ".modified" if _git(checkout, "status", "--porcelain") else ""
    return f"{release}+{commit[:_DIGITS]}{modified}"


def _git(checkout: Path, *words: str) -> str:
    """Return what a git command prints about the sources in a checkout.

    `words` are the command and its options. The output is empty if there is no git or the command fails.
    """
    command = ["git", "-C", str(checkout), *words, "--", *SOURCES, f":(exclude){_NAMING}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
