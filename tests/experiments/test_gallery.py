"""``gallery --only``: the families that are named, in their sequence, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import call
from packages import SERIAL, installed

from tightpipe import NoScheduleError
from tightpipe.core.metrics import cost, peak_memory
from tightpipe.experiments import gallery as module
from tightpipe.experiments.gallery import DEVICES, gallery


def test_the_named_families_are_drawn_in_their_sequence(tmp_path: Path) -> None:
    assert [label for label, _ in gallery(["zb-h1", "1f1b"])] == ["zb-h1", "1f1b"]
    assert [label for label, _ in gallery(["zb-auto"])] == ["zb-auto, 1p of memory", "zb-auto, 2p of memory"]
    done = call("gallery", "--only", "zb-h1, 1f1b", "-o", tmp_path / "g.svg")
    assert (done.returncode, done.stderr) == (0, "")
    svg = (tmp_path / "g.svg").read_text()
    assert svg.index("<!-- zb-h1 -->") < svg.index("<!-- 1f1b -->")
    assert "<!-- gpipe -->" not in svg


def test_blocks_are_drawn_at_two_limits_and_are_no_copies_of_published_ones() -> None:
    drawn = dict(gallery(["block", "v-min"]))
    assert list(drawn) == ["block, 1p of memory", "block, 1.25p of memory", "v-min"]
    least, more, published = drawn.values()
    assert cost(more) < cost(least) == cost(published)
    assert least.order != published.order
    for factor, schedule in ((1, least), (1.25, more)):
        assert peak_memory(schedule).max() <= factor * DEVICES * 6  # of one stage's activations


@pytest.mark.parametrize("name", ["magic", "best", ""])
def test_what_is_no_heuristic_is_refused(name: str, tmp_path: Path) -> None:
    done = call("gallery", "--only", f"1f1b,{name}", "-o", tmp_path / "g.png")
    assert done.returncode == 2
    assert done.stderr.startswith(f"tightpipe: only = '{name}': must be heuristics, of greedy-v, list, gpipe")
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
