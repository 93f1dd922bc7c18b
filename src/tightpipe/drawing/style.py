"""What charts share: sizes and style, markers and legends, panels side by side, and files of pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch

from ..base.errors import InputError
from ..base.files import check_writable, is_standard_output, write_bytes
from ..model.operation import OpKind
from . import palette
from .palette import Look

SUFFIXES = (".pdf", ".png", ".svg")
_METADATA: dict[str, dict[str, Any]] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}, ".png": {}}
_PROGRAM = {".pdf": "Creator", ".svg": "Creator", ".png": "Software"}
"""The entry of the metadata that says, in each format, which program made the file."""


def check_target(path: str | Path) -> str:
    """Return the suffix of a figure's format, after a check that the figure can be written.

    The check comes before the drawing, which may take long. Standard output has no suffix and gets a PNG.
    """
    suffix = ".png" if is_standard_output(path) else Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"must end in one of {', '.join(SUFFIXES)}", key="figure", value=str(path))
    check_writable(path)
    return suffix


def draw_points(points: Sequence[Point], path: str | Path, draw: Callable[[], Figure]) -> None:
    """Call `draw` in the style of the project, and write the figure; it names the engines of the points."""
    if not points:
        raise InputError("there is nothing to draw", key="figure", value=str(path))
    check_target(path)
    with paper_style():
        figure = draw()
        engines = dict.fromkeys(point["engine"] for point in points if point.get("engine"))
        if engines:
            note_engine(figure, ", ".join(engines))
    write_figure(figure, path, DPI)


def write_figure(figure: Figure, path: str | Path, dpi: int) -> None:
    """Write a figure in the format of the path's suffix; `dpi` is the resolution of images in the file."""
    write_bytes(path, figure_bytes(figure, check_target(path), dpi))


def figure_bytes(figure: Figure, suffix: str, dpi: int) -> bytes:
    """Return the content of a figure's file; `suffix` is one of `SUFFIXES`, and `dpi` the resolution.

    The content has no date, so that the same figure always gives the same file. If the figure has a note
    that names the engine of its results (see `style`), the metadata has the text of the note too.
    """
    content, noted = BytesIO(), engine_note(figure)
    metadata = _METADATA[suffix] | ({} if noted is None else {_PROGRAM[suffix]: noted})
    with paper_style():
        figure.savefig(content, format=suffix[1:], dpi=dpi, metadata=metadata)
    return content.getvalue()


WIDTH = 7.0  # inches; the width of a two-column page
DPI = 300
DENSE_DPI = 600
DENSE_BARS = 10_000  # more bars are drawn as one image inside vector files, which keeps the files small

FONT_SIZE = 7.0  # points
LARGEST_NUMBER = 6.5
SMALLEST_NUMBER = 3.5
SMALLEST_NAMED = 4.5  # numbers in a smaller size have no letter of the kind beside them
DIGIT_WIDTH = 0.64  # share of the font size, for DejaVu Sans
NAME_WIDTHS = {OpKind.F: 0.58, OpKind.B: 0.69, OpKind.W: 0.99, OpKind.BW: 1.68}  # shares of the font size

HATCH = "////"  # the width of its lines is set in tightpipe.mplstyle

_STYLE = Path(__file__).with_name("tightpipe.mplstyle")


@contextmanager
def paper_style() -> Iterator[None]:
    """Let matplotlib draw in the style of the project until the block ends."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(mpl.rc_params_from_file(_STYLE, use_default_template=False))
        mpl.rcParams.update({"axes.edgecolor": palette.INK, "grid.color": palette.LINE})
        yield


def thousands(value: float, _position: int | None = None) -> str:
    """Return a number as text, e.g. ``1,234,567``; matplotlib also passes a position, which is not used."""
    return f"{value:,.0f}"


Place = Literal["outside upper center", "outside lower center"]

_HANDLE, _CHARACTER = 0.45, 0.055  # inches; widths of the mark of a legend entry and of a character
MARKER = 4.5  # points
# Factors on the size of each kind of marker, with which all kinds look equally large
_OPTICAL = {"^": 1.2, "v": 1.2, "<": 1.2, ">": 1.2, "X": 1.1, "P": 1.1, "D": 0.9, "d": 1.2}
_EDGE, _OPEN_EDGE = 0.5, 1.0  # points
_LARGEST_MARKER, _SMALLEST_MARKER = 7.0, 3.8


def legend(figure: Figure, handles: Sequence[Artist], place: Place = "outside upper center") -> None:
    """Add a legend outside the panels of a figure, in as few lines of even length as fit."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    most = max(1, int(WIDTH / (_HANDLE + _CHARACTER * longest)))
    lines = -(-len(handles) // most)
    figure.legend(handles=handles, loc=place, ncols=-(-len(handles) // lines))


def line_look(look: Look) -> dict[str, Any]:
    """Return the colour and the dashes of a series, as keyword arguments of matplotlib."""
    return {"color": look.colour, "linestyle": (0, look.dashes) if look.dashes else "-"}


def marker_look(look: Look, size: float = MARKER) -> dict[str, Any]:
    """Return the marker of a series, `size` points large, as keyword arguments of matplotlib."""
    return {
        "color": look.colour,
        "marker": look.marker,
        "markersize": size * _OPTICAL.get(look.marker, 1.0) - (_OPEN_EDGE if look.hollow else 0.0),
        "markerfacecolor": palette.PAPER if look.hollow else look.colour,
        "markeredgecolor": look.colour if look.hollow else palette.PAPER,
        "markeredgewidth": _OPEN_EDGE if look.hollow else _EDGE,
    }


def nested_sizes(count: int) -> list[float]:
    """Return marker sizes in points for `count` series, so that coinciding markers enclose each other."""
    step = (_LARGEST_MARKER - _SMALLEST_MARKER) / max(1, count - 1)
    return [_LARGEST_MARKER - step * index for index in range(count)]


def proof_handles(side: str = "below", *, undecided: bool = True) -> list[Patch]:
    """Return legend entries for the area proven impossible and, if there is one, the band of the optimum."""
    band = Patch(facecolor=palette.UNDECIDED, label="the optimum lies here")
    impossible = Patch(facecolor=palette.PROVEN, label=f"proven impossible ({side} the bound)")
    return [band, impossible] if undecided else [impossible]


Point = Mapping[str, Any]
"""The data of one mark or row of a chart, by key; each drawing function says which keys it needs."""
_HEIGHT = 2.6  # inches; height of a row of panels
_MOST_IN_A_ROW = 3
_MOST_LEVEL_CHARACTERS = 85  # if the names below an axis have more characters in all, they are slanted


def panels(titles: Sequence[str]) -> tuple[Figure, list[Axes]]:
    """Return a figure as wide as a page, and its panels, one per title, which share their axes."""
    columns = 2 if len(titles) == 4 else min(len(titles), _MOST_IN_A_ROW)
    rows = -(-len(titles) // columns)
    figure = Figure(figsize=(WIDTH, _HEIGHT * rows), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for panel, title in zip(axes.flat, titles, strict=False):
        panel.set_title(title)
        panel.grid(axis="y")
        panel.tick_params(labelbottom=True)  # also where the last row has no panel below
    for panel in list(axes.flat)[len(titles) :]:
        panel.remove()
    return figure, list(axes.flat)[: len(titles)]


def label_y(axes: Sequence[Axes], text: str) -> None:
    """Write the label of the y axis at the left of each row of panels."""
    for panel in axes:
        if panel.get_subplotspec().is_first_col():  # type: ignore[union-attr]
            panel.set_ylabel(text)


def label_places(axes: Axes, names: Sequence[str]) -> None:
    """Label the positions 0, 1, 2 and so on of the x axis of a page-wide figure with `names`."""
    axes.set_xticks(range(len(names)), names)
    if sum(len(name) + 2 for name in names) > _MOST_LEVEL_CHARACTERS:
        axes.tick_params(axis="x", labelrotation=30)
        for text in axes.get_xticklabels():
            text.set(ha="right", rotation_mode="anchor")
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.tick_params(axis="x", length=0)


def distinct(points: Sequence[Point], key: str) -> list[Any]:
    """Return the values of a key, each once, in the sequence in which they first appear."""
    return list(dict.fromkeys(point[key] for point in points))


def having(points: Sequence[Point], **values: Any) -> list[Point]:
    """Return the points that have these values for these keys."""
    return [point for point in points if all(point[key] == value for key, value in values.items())]


_FONT_SIZE = 4.5  # points
_STRIP = 0.1  # inches that are added below all else for the note
_MARGIN = 0.03  # inches to the edges of the figure
_NAME = "engine"  # gid of the note among the texts of a figure


def note_engine(figure: Figure, engine: str) -> None:
    """Write an engine version at the lower right of a figure.

    A figure with constrained layout first grows by a strip at the bottom, which only the note takes.
    """
    layout = figure.get_layout_engine()
    if isinstance(layout, ConstrainedLayoutEngine):
        height = figure.get_figheight() + _STRIP
        figure.set_figheight(height)
        layout.set(rect=(0.0, _STRIP / height, 1.0, 1.0 - _STRIP / height))
    corner = (1 - _MARGIN / figure.get_figwidth(), _MARGIN / figure.get_figheight())
    look: dict[str, Any] = {"ha": "right", "color": palette.SOFT, "fontsize": _FONT_SIZE, "gid": _NAME}
    figure.text(*corner, f"tightpipe {engine}", **look)


def engine_note(figure: Figure) -> str | None:
    """Return the text of the note in a figure, e.g. ``tightpipe 0.1.0+8442489``; None without a note."""
    return next((text.get_text() for text in figure.texts if text.get_gid() == _NAME), None)
