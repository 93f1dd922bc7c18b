"""The command ``compile``."""

from __future__ import annotations

from ..solving.ensure_compiled import ensure_compiled
from .common import cli


@cli.command("compile")
def _compile() -> None:
    """Compile all inner loops now, so that no later command waits for it."""
    ensure_compiled()
