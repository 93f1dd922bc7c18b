from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import pytest
from helpers.cases import not_as_root

from tightpipe import InputError, Schedule
from tightpipe.drawing import (
    draw_bubble_rates,
    draw_distributions,
    draw_frontier,
    draw_gantt,
    draw_gap_over_time,
    draw_plans,
    draw_shares,
)
from tightpipe.drawing.style import note_engine, panels

ROWS = [{"setting": "2x2", "method": "m", "bubble_rate": 0.2, "work": 8, "bound": 9, "cost": 10}]
SIGNATURES = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml", ".PNG": b"\x89PNG"}
Draw = Callable[[Path], None]


@pytest.fixture(params=["gantt", "bubble rates"])
def draw(request: pytest.FixtureRequest, small_v: Schedule) -> Draw:
    if request.param == "gantt":
        return lambda path: draw_gantt([("small", small_v)], path=path)
    return lambda path: draw_bubble_rates(ROWS, path)


@pytest.mark.parametrize("suffix", SIGNATURES)
def test_suffix_decides_the_format(draw: Draw, tmp_path: Path, suffix: str) -> None:
    target = tmp_path / f"figure{suffix}"
    draw(target)
    assert target.read_bytes().startswith(SIGNATURES[suffix])
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("name", ["figure.gif", "figure", ".png"])
def test_unknown_suffix(draw: Draw, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"must end in one of \.pdf, \.png, \.svg") as error:
        draw(Path(name))
    assert repr(name) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("suffix", [".pdf", ".svg"])
def test_equal_figures_give_equal_files(draw: Draw, tmp_path: Path, suffix: str) -> None:
    for name in ("a", "b"):
        draw(tmp_path / f"{name}{suffix}")
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_missing_folder(draw: Draw, tmp_path: Path) -> None:
    target = tmp_path / "absent" / "figure.png"
    with pytest.raises(InputError, match="there is no such folder") as error:
        draw(target)
    assert str(error.value).startswith(str(target))


@not_as_root
def test_read_only_folder(draw: Draw, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="read-only"):
        draw(tmp_path / "figure.png")


def test_folder_as_target(draw: Draw, tmp_path: Path) -> None:
    (tmp_path / "figure.png").mkdir()
    with pytest.raises(InputError, match="it is a folder"):
        draw(tmp_path / "figure.png")


def test_failed_write_keeps_the_old_file(draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "figure.png"
    target.write_text("old")

    def no_space(self: Path, content: bytes) -> int:
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", no_space)
    with pytest.raises(InputError, match="No space left on device"):
        draw(target)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_the_callers_settings_stay(draw: Draw, tmp_path: Path) -> None:
    with mpl.rc_context({"font.size": 23}):
        draw(tmp_path / "figure.png")
        assert mpl.rcParams["font.size"] == 23


@pytest.mark.parametrize(
    ("suffix", "entry"), [("png", b"Software"), ("pdf", b"/Creator"), ("svg", b"<dc:creator>")]
)
def test_a_picture_and_its_metadata_name_the_engine(suffix: str, entry: bytes, tmp_path: Path) -> None:
    signed, plain = tmp_path / f"signed.{suffix}", tmp_path / f"plain.{suffix}"
    draw_bubble_rates([{**row, "engine": "1.2.3+abcdef0"} for row in ROWS], signed)
    draw_bubble_rates(ROWS, plain)
    assert entry in signed.read_bytes()
    assert b"tightpipe 1.2.3+abcdef0" in signed.read_bytes()
    assert b"tightpipe" not in plain.read_bytes()
    if suffix == "svg":
        assert "<!-- tightpipe 1.2.3+abcdef0 -->" in signed.read_text()


def test_an_engine_is_named_below_all_else() -> None:
    figure, (panel,) = panels(["a panel"])
    panel.set_xlabel("a label")
    height = figure.get_figheight()
    note_engine(figure, "1.2.3")
    figure.draw_without_rendering()
    (note,) = figure.texts
    assert note.get_window_extent().y1 <= panel.xaxis.label.get_window_extent().y0
    assert figure.get_figheight() > height


@pytest.mark.parametrize(
    ("draw_points", "words"),
    [
        (draw_bubble_rates, {}),
        (draw_distributions, {}),
        (draw_frontier, {"x_label": "memory", "looser": True}),
        (draw_gap_over_time, {}),
        (draw_plans, {"x_label": "memory", "y_label": "time"}),
        (draw_shares, {"x_label": "share"}),
    ],
)
def test_a_figure_of_no_points_is_refused(
    draw_points: Callable[..., None], words: dict[str, object], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="there is nothing to draw"):
        draw_points([], tmp_path / "figure.png", **words)
    assert list(tmp_path.iterdir()) == []
