"""The report in a real browser: it sorts, filters, selects, zooms, pans and tells, and asks no network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.studies import make_study
from playwright.sync_api import Browser, Locator, Page, expect

from tightpipe import Instance, OpKind, Schedule, solve
from tightpipe.drawing import palette
from tightpipe.explain import explain
from tightpipe.model.costs import Step
from tightpipe.model.metrics import cost
from tightpipe.model.simulate import memory_trace
from tightpipe.report import Entry, Report, render, report_of_study
from tightpipe.settings import load_settings

LEFT, RIGHT, AXIS = 34, 10, 24  # around the chart's frame in its canvas, as in gantt.js


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Path]:
    report = report_of_study(make_study(tmp_path_factory.mktemp("study")))
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(report), encoding="utf-8")
    return report, path


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Schedule, Path]:
    """32 devices, 256 microbatches: twice 49,152 operations on one page."""
    instance = load_settings()["28.3B-32x256"].instance()
    entries = []
    for method in ("greedy-v", "v-zb"):
        schedule = solve(instance, method).schedule
        assert schedule is not None
        assert len(schedule.order) == 49_152
        entries.append(Entry({"method": method, "cost": 0}, method, schedule, method))
    path = tmp_path_factory.mktemp("large") / "report.html"
    path.write_text(render(Report("large", "", tuple(entries)), relax=False), encoding="utf-8")
    schedule = entries[0].schedule
    assert schedule is not None
    return schedule, path


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page; at the end it must have had no error and asked for nothing but itself."""
    opened = browser.new_page(viewport={"width": 1400, "height": 1000})
    faults: list[str] = []
    requests: list[str] = []
    opened.on("console", lambda message: faults.append(message.text))
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("request", lambda request: requests.append(request.url))
    yield opened
    assert faults == []
    assert requests == [opened.url]
    opened.close()


def visit(page: Page, path: Path) -> None:
    page.goto(path.as_uri())
    expect(page.locator("canvas").first).to_be_visible()
    settle(page)


def settle(page: Page) -> None:
    """Wait until what was asked for has been drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def column(page: Page, title: str) -> list[str]:
    heads = page.locator(".results thead th").all_inner_texts()
    k = next(i for i, text in enumerate(heads) if text.startswith(title))
    return page.locator(f".results tbody tr:not([hidden]) td:nth-child({k + 1})").all_inner_texts()


def picture(canvas: Locator) -> str:
    settle(canvas.page)
    return str(canvas.evaluate("(canvas) => canvas.toDataURL()"))


def place_of(canvas: Locator, schedule: Schedule, device: int, time: float) -> tuple[float, float]:
    """Where a device is at a time, on the screen, when the whole time is shown."""
    box = canvas.bounding_box()
    assert box is not None
    begin, end = int(schedule.start.min()), int(schedule.end.max())
    part = (time - begin) / (end - begin)
    height = (box["height"] - AXIS) / schedule.order.devices
    return box["x"] + LEFT + part * (box["width"] - LEFT - RIGHT), box["y"] + (device + 0.5) * height


def test_the_table_sorts_in_both_directions(page: Page, study: tuple[Report, Path]) -> None:
    visit(page, study[1])
    head = page.locator(".results th", has_text=re.compile("^cost"))
    for direction in ("ascending", "descending"):
        head.get_by_role("button").click()
        expect(head).to_have_attribute("aria-sort", direction)
        costs = [int(text.replace(",", "")) for text in column(page, "cost")]
        assert costs == sorted(costs, reverse=direction == "descending")
        assert len(set(costs)) > 1
    page.locator(".results th", has_text="method").get_by_role("button").press("Enter")
    assert column(page, "method") == sorted(column(page, "method"))


def test_the_table_filters_by_words_and_comparisons(page: Page, study: tuple[Report, Path]) -> None:
    visit(page, study[1])
    assert page.locator("#count").inner_text() == "6 rows"
    page.fill("#filter", "CPSAT 3p")
    assert column(page, "method") == ["cpsat"]
    assert page.locator("#count").inner_text() == "1 of 6 rows"
    costs = sorted(int(entry.values["cost"] or 0) for entry in study[0].entries)
    page.fill("#filter", f"cost>{costs[0]}")
    assert len(column(page, "cost")) == sum(cost > costs[0] for cost in costs)
    page.fill("#filter", "method=cpsat")
    assert set(column(page, "method")) == {"cpsat"}
    page.fill("#filter", "no such words")
    assert column(page, "method") == []
    page.fill("#filter", "")
    assert page.locator("#count").inner_text() == "6 rows"


def test_a_selected_row_shows_heuristic_and_solver(page: Page, study: tuple[Report, Path]) -> None:
    visit(page, study[1])
    rows = page.locator(".results tbody tr")
    rows.nth(5).click()
    panels = page.locator(".panel h3")
    expect(panels).to_have_text(["small · 3p · device_span · greedy-v", "small · 3p · device_span · cpsat"])
    rows.nth(5).press("ArrowUp")
    rows.nth(4).press("ArrowUp")
    rows.nth(3).press("Enter")
    expect(panels).to_have_text(["small · 3p · device_span · v-half", "small · 3p · device_span · cpsat"])
    assert rows.nth(3).get_attribute("aria-selected") == "true"
    assert page.locator("tr[aria-selected]").count() == 1


def test_hovering_tells_what_is_there(page: Page, study: tuple[Report, Path]) -> None:
    visit(page, study[1])
    schedule = study[0].entries[0].schedule
    assert schedule is not None
    canvas, tooltip = page.locator("canvas").first, page.locator("#tooltip")
    row = schedule.order.operations.tolist().index([OpKind.F, 1, 0])
    start, end = int(schedule.start[row]), int(schedule.end[row])
    page.mouse.move(*place_of(canvas, schedule, 1, (start + end) / 2))
    for text in (
        "F1.0 on device 1 · chunk 0",
        f"{start} – {end} ({end - start} ticks)",
        "F0.0, which ended at 10, 1 on its way",
        "2 of 8 held (25.00 %)",
    ):
        expect(tooltip).to_contain_text(text)
    outlined = picture(canvas)
    gap = max(explain(schedule, relax=False).idle, key=lambda idle: idle.ticks)
    page.mouse.move(*place_of(canvas, schedule, gap.device, (gap.start + gap.end) / 2))
    for text in (f"device {gap.device} idle · {gap.phase}", str(gap.reason), str(gap)):
        expect(tooltip).to_contain_text(text)
    assert picture(canvas) != outlined
    page.mouse.move(5, 5)
    expect(tooltip).to_be_hidden()


def test_hovering_names_full_memory(page: Page, study: tuple[Report, Path]) -> None:
    visit(page, study[1])
    schedule = study[0].entries[0].schedule
    assert schedule is not None
    held, kinds = memory_trace(schedule.instance, schedule.order), schedule.order.operations[:, 0]
    full = (kinds[1:] == OpKind.F) & (held[:-1] + 2 > 8) & (schedule.start[1:] == schedule.end[:-1])
    rows = np.flatnonzero(full) + 1
    assert rows.size > 0
    row = int(rows[0])
    device = int(np.searchsorted(schedule.order.offsets, row, side="right")) - 1
    middle = int(schedule.start[row] + schedule.end[row]) / 2
    page.mouse.move(*place_of(page.locator("canvas").first, schedule, device, middle))
    before = schedule.order.operation_at(row - 1)
    text = f"{before} on its device, until {schedule.start[row]}, without room in memory before"
    expect(page.locator("#tooltip")).to_contain_text(text)


def test_a_step_is_shown_from_tick_0_and_its_stage_is_waited_for(page: Page, tmp_path: Path) -> None:
    instance = Instance.uniform(
        devices=2, microbatches=3, forward=10, backward=10, weight=10, placement="linear", objective="step",
        step=Step(ready=[60, 90], optimizer=20),
    )  # fmt: skip
    schedule = solve(instance, "1f1b").schedule
    assert schedule is not None
    path = tmp_path / "page.html"
    path.write_text(render(Report("step", "", (Entry({}, "step", schedule, "1f1b"),)), relax=False))
    visit(page, path)
    box = page.locator("canvas").bounding_box()
    assert box is not None
    for device, text in enumerate(["its stage, which was ready at 60", "its stage, which was ready at 90"]):
        start = int(schedule.start[schedule.order.offsets[device]])
        part = (start + 5) / cost(schedule)
        height = (box["height"] - AXIS) / 2
        page.mouse.move(
            box["x"] + LEFT + part * (box["width"] - LEFT - RIGHT), box["y"] + (device + 0.5) * height
        )
        expect(page.locator("#tooltip")).to_contain_text(text)
        expect(page.locator("#tooltip")).not_to_contain_text("later")


def test_wheel_drag_and_keys_move_all_charts(page: Page, study: tuple[Report, Path]) -> None:
    visit(page, study[1])
    first, second = page.locator("canvas").nth(0), page.locator("canvas").nth(1)
    whole = picture(first), picture(second)
    box = first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 400, box["y"] + 20)
    page.mouse.wheel(0, -600)
    zoomed = picture(first), picture(second)
    assert zoomed[0] != whole[0]
    assert zoomed[1] != whole[1]
    page.mouse.down()
    page.mouse.move(box["x"] + 250, box["y"] + 20, steps=5)
    page.mouse.up()
    page.mouse.move(5, 5)
    panned = picture(first)
    assert panned != zoomed[0]
    first.press("ArrowLeft")
    assert picture(first) != panned
    first.press("0")
    assert (picture(first), picture(second)) == whole
    page.get_by_role("button", name="Zoom in").click()
    assert picture(first) != whole[0]
    first.dblclick()
    page.mouse.move(5, 5)
    assert picture(first) == whole[0]


def test_what_is_explained_leads_to_its_place(page: Page, study: tuple[Report, Path]) -> None:
    visit(page, study[1])
    canvas = page.locator("canvas").first
    whole = picture(canvas)
    page.locator("#show-critical").check()
    critical = picture(canvas)
    page.locator("#show-reasons").check()
    expect(page.locator("#legend")).to_contain_text("idle: dependency")
    assert len({whole, critical, picture(canvas)}) == 3
    page.locator("summary").first.click()
    blocks = page.locator("details").first.locator(".block")
    expect(blocks.locator("h4")).to_have_count(4)
    path = blocks.filter(has_text="Critical path").locator("tbody tr td:nth-child(2)").all_inner_texts()
    cost = study[0].entries[0].values["cost"]
    assert sum(int(text.replace(",", "")) for text in path) == cost
    before = picture(canvas)
    blocks.filter(has_text="Longest idle").get_by_role("button").first.click()
    assert picture(canvas) != before
    expect(blocks.filter(has_text="weaker")).to_contain_text("memory +1 activation")


def test_colours_are_those_of_the_figures(page: Page, study: tuple[Report, Path]) -> None:
    visit(page, study[1])
    entries = page.locator("#legend span")
    expect(entries).to_have_text(
        ["F chunk 0", "F chunk 1", "B chunk 0", "B chunk 1", "W chunk 0", "W chunk 1", "idle"]
    )
    swatch = entries.filter(has_text="W chunk 0").locator("i")
    red, green, blue = bytes.fromhex(palette.shade(OpKind.W, 0, 2)[1:])
    expect(swatch).to_have_css("background-color", f"rgb({red}, {green}, {blue})")
    expect(swatch).to_have_css("width", "18px")


def test_fused_backwards_are_hatched_and_kinds_named(page: Page, tmp_path: Path) -> None:
    instance = Instance.uniform(
        devices=2, microbatches=3, forward=3, backward=3, weight=2, placement="linear"
    )
    schedule = solve(instance, "1f1b").schedule
    assert schedule is not None
    path = tmp_path / "page.html"
    entry = Entry({"cost": 1}, "1f1b", schedule, "1f1b")
    path.write_text(render(Report("fused", "", (entry,))), encoding="utf-8")
    visit(page, path)
    swatch = page.locator("#legend span").filter(has_text="BW").locator("i")
    expect(swatch).to_have_css("background-image", re.compile("repeating-linear-gradient"))
    row = schedule.order.operations.tolist().index([OpKind.BW, 0, 0])
    middle = int(schedule.start[row] + schedule.end[row]) / 2
    colours = colours_around(page.locator("canvas"), schedule, 0, middle)
    assert {palette.shade(OpKind.BW, 0, 1), palette.PAPER} <= colours


def test_a_reason_is_a_strip_within_idle_time(page: Page, study: tuple[Report, Path]) -> None:
    visit(page, study[1])
    schedule = study[0].entries[0].schedule
    assert schedule is not None
    gap = max(explain(schedule, relax=False).idle, key=lambda idle: idle.ticks)
    page.locator("#show-reasons").check()
    settle(page)
    canvas, middle = page.locator("canvas").first, (gap.start + gap.end) / 2
    assert {palette.IDLE, palette.REASONS[gap.reason]} <= colours_around(canvas, schedule, gap.device, middle)


def colours_around(canvas: Locator, schedule: Schedule, device: int, time: float) -> set[str]:
    """The colours of the pixels that lie within 8 of a device's middle at a time."""
    x, y = place_of(canvas, schedule, device, time)
    box = canvas.bounding_box()
    assert box is not None
    script = """(canvas, [x, y]) => {
        const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
        copy.drawImage(canvas, 0, 0);
        return [...copy.getImageData(Math.round(x) - 8, Math.round(y) - 8, 16, 16).data];
    }"""
    pixels = np.array(canvas.evaluate(script, [x - box["x"], y - box["y"]])).reshape(-1, 4)
    return {f"#{red:02X}{green:02X}{blue:02X}" for red, green, blue, _ in pixels.tolist()}


def test_figures_are_shown(page: Page, study: tuple[Report, Path]) -> None:
    visit(page, study[1])
    image = page.locator("figure img")
    image.scroll_into_view_if_needed()
    expect(page.locator("figcaption")).to_have_text("Bubble rate")
    assert image.evaluate("async (image) => { await image.decode(); return image.naturalWidth; }") == 1


@pytest.mark.parametrize("width", [1600, 1000, 420])
def test_no_width_makes_the_page_scroll_sideways(page: Page, study: tuple[Report, Path], width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    visit(page, study[1])
    page.locator("summary").first.click()
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width


def test_49152_operations_are_drawn_and_follow_the_pointer(
    page: Page, large: tuple[Schedule, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    schedule, path = large
    visit(page, path)
    canvas, tooltip = page.locator("canvas").first, page.locator("#tooltip")
    assert coloured_part(canvas) > 0.7
    row = schedule.order.rows(31)
    middle = int(schedule.start[row].min() + schedule.end[row].max()) / 2
    page.mouse.move(*place_of(canvas, schedule, 31, middle))
    expect(tooltip).to_contain_text("device 31")
    times = {name: pan(page, canvas, zoom) for name, zoom in (("whole", -200), ("a tenth", -1500))}
    with capsys.disabled():
        for name, frames in times.items():
            median, slowest = np.median(frames), np.max(frames)
            print(f"\n{name} of 2 x 49,152 operations: {len(frames)} frames while panning, ", end="")
            print(f"median {median:.1f} ms, slowest {slowest:.1f} ms", end="")
    assert coloured_part(canvas) > 0.7


def coloured_part(canvas: Locator) -> float:
    """Part of the chart's frame that is not white or grey."""
    settle(canvas.page)
    script = """(canvas) => {
        const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
        copy.drawImage(canvas, 0, 0);
        const {data} = copy.getImageData(0, 0, canvas.width, canvas.height);
        let coloured = 0;
        for (let i = 0; i < data.length; i += 4) coloured += data[i] !== data[i + 1] || data[i] !== data[i + 2];
        return (4 * coloured) / data.length;
    }"""
    return float(canvas.evaluate(script))


def pan(page: Page, canvas: Locator, wheel: int) -> list[float]:
    """Zoom, then drag across the chart; returns the times between frames in milliseconds."""
    box = canvas.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + 60
    page.mouse.move(x, y)
    page.mouse.dblclick(x, y)
    page.mouse.wheel(0, wheel)
    before = picture(canvas)
    page.evaluate(
        """() => {
            window.frames_ = [];
            const next = (last) => requestAnimationFrame((now) => { window.frames_.push(now - last); next(now); });
            next(performance.now());
        }"""
    )
    page.mouse.down()
    page.mouse.move(x - 300, y, steps=50)
    page.mouse.up()
    frames: list[Any] = page.evaluate("() => window.frames_.slice()")
    assert picture(canvas) != before
    return [float(time) for time in frames]
