"""The gallery of all families, and ``gallery --only``: those that are named, in their sequence, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.command_line import call
from helpers.packages import SERIAL, installed

from tightpipe import NoScheduleError, Schedule, validate
from tightpipe.base.sources import engine_version
from tightpipe.experiments import presets as module
from tightpipe.experiments.presets import DEVICES, draw_gallery, gallery
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.metrics import cost, peak_memory


def test_the_named_families_are_drawn_in_their_sequence(tmp_path: Path) -> None:
    assert [label for label, _ in gallery(["zb-h1", "1f1b"])] == ["zb-h1", "1f1b"]
    assert [label for label, _ in gallery(["zb-auto"])] == ["zb-auto, 1p of memory", "zb-auto, 2p of memory"]
    done = call("paper", "gallery", "--only", "zb-h1, 1f1b", "-o", tmp_path / "g.svg")
    assert (done.returncode, done.stderr) == (0, "")
    svg = (tmp_path / "g.svg").read_text()
    assert svg.index("<!-- zb-h1 -->") < svg.index("<!-- 1f1b -->")
    assert "<!-- gpipe -->" not in svg


@pytest.fixture(scope="module")
def drawn() -> list[tuple[str, Schedule]]:
    return gallery()


def test_the_gallery_draws_every_family_valid(drawn: list[tuple[str, Schedule]]) -> None:
    assert {label.split(",")[0] for label, _ in drawn} == {*HEURISTICS, "block"}
    assert all(validate(schedule.instance, schedule) == [] for _, schedule in drawn)
    assert {schedule.order.devices for _, schedule in drawn} == {4}


def test_the_gallery_is_drawn(
    drawn: list[tuple[str, Schedule]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "gallery", lambda _: drawn)
    draw_gallery(tmp_path / "gallery.svg")
    svg = (tmp_path / "gallery.svg").read_text()
    assert svg.count("bubble rate") == len(drawn)
    assert f"<!-- tightpipe {engine_version()} -->" in svg


def test_blocks_are_drawn_at_two_limits_and_are_no_copies_of_published_ones(
    drawn: list[tuple[str, Schedule]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_EFFORT", 0.1)
    labels = [label for label, _ in gallery(["block", "v-min"])]
    assert labels == ["block, 1p of memory", "block, 1.25p of memory", "v-min"]
    least, more, published = (dict(drawn)[label] for label in labels)
    assert cost(more) < cost(least) == cost(published)
    assert least.order != published.order
    for factor, schedule in ((1, least), (1.25, more)):
        assert peak_memory(schedule).max() <= factor * DEVICES * 6  # of one stage's activations


@pytest.mark.parametrize("name", ["magic", "best", ""])
def test_what_is_no_heuristic_is_refused(name: str, tmp_path: Path) -> None:
    done = call("paper", "gallery", "--only", f"1f1b,{name}", "-o", tmp_path / "g.png")
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"tightpipe: only = '{name}': must be heuristics, of greedy-v, list, due-date"
    )
    assert list(tmp_path.iterdir()) == []


def test_installed_heuristics_are_drawn_where_they_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"{SERIAL}\n\ndef never(_):\n    from tightpipe import NoScheduleError\n    raise NoScheduleError('no')\n"
    with installed(tmp_path, {"serial": "toy:serial", "never": "toy:never"}, code):
        assert [label for label, _ in gallery(["serial"])] == ["serial"]
        monkeypatch.setattr(module, "_FACTORS", {})
        monkeypatch.setattr(module, "_BLOCK", "greedy-v")  # nothing is searched for here
        assert "serial" not in [label for label, _ in gallery()]
        with pytest.raises(NoScheduleError, match="never: no"):
            gallery(["never"])
