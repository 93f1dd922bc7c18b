from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import pytest
from cases import not_as_root

from tightpipe import InputError, Schedule
from tightpipe.drawing import draw_bubble_rates, draw_gantt

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
