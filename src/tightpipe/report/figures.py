"""The pictures of a study are stored as data inside the page."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path

_TYPES = {".png": "image/png", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture with its name; `source` is a data URI, which contains the picture."""

    name: str
    source: str


def load_figures(folder: Path) -> tuple[Figure, ...]:
    """Return the PNG and SVG pictures of a folder, sorted by name; if a name has both, only the PNG."""
    chosen = {path.stem: path for suffix in (".svg", ".png") for path in sorted(folder.glob(f"*{suffix}"))}
    return tuple(Figure(_title(stem), _data_uri(chosen[stem])) for stem in sorted(chosen))


def _title(stem: str) -> str:
    words = stem.replace("_", " ").replace("-", " ").strip()
    return words[:1].upper() + words[1:]


def _data_uri(path: Path) -> str:
    return f"data:{_TYPES[path.suffix]};base64,{b64encode(path.read_bytes()).decode()}"
