"""Whatever reads or shows a schedule is right where microbatches differ, or refuses it in one line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.cases import classed, instances, mixed_order, random_order, wide_instances
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import (
    InputError,
    Instance,
    Memory,
    MicrobatchClass,
    OpKind,
    Order,
    Schedule,
    retime,
    validate,
)
from tightpipe.certificates import certify
from tightpipe.drawing.gantt import gantt_figure
from tightpipe.drawing.lanes import lanes
from tightpipe.drawing.text import draw_text
from tightpipe.explain import explain
from tightpipe.export import EXPORTS, data_sequence, export_text, import_order
from tightpipe.model import metrics
from tightpipe.model.microbatches import lengths, renumbered
from tightpipe.model.schedule_file import schedule_from_dict, schedule_to_dict
from tightpipe.noise import Jitter, run_noisy
from tightpipe.program import lower, replay
from tightpipe.program.passes import overlap_program
from tightpipe.program.program_file import program_to_dict
from tightpipe.report.page import chart
from tightpipe.report.sources import Entry

ANY = st.one_of(instances(max_microbatches=5), wide_instances(max_microbatches=5))


def classed_schedule(instance: Instance, seed: int) -> Schedule:
    """A valid schedule of a random order of microbatches that may differ, without a memory limit."""
    instance = classed(instance, seed)
    free = replace(instance, memory=instance.memory and replace(instance.memory, limit=None))
    schedule = retime(free, mixed_order(free, seed))
    assert validate(free, schedule) == []
    return schedule


SCHEDULES = st.builds(classed_schedule, ANY, st.integers(0, 9999))


@given(SCHEDULES)
def test_a_schedule_file_and_the_text_of_an_order_hold_every_microbatch(schedule: Schedule) -> None:
    read = schedule_from_dict(json.loads(json.dumps(schedule_to_dict(schedule))))
    assert read.schedule == schedule
    assert Order.parse(str(schedule.order)) == schedule.order


@given(SCHEDULES)
def test_the_explanation_accounts_for_the_whole_cost(schedule: Schedule) -> None:
    found = explain(schedule, relax=False)
    assert sum(step.ticks for step in found.critical) == metrics.cost(schedule) or schedule.instance.barrier
    assert all(d.busy + d.idle == d.charged for d in found.devices)
    for d, device in enumerate(found.devices):
        operations = schedule.order.to_lists()[d]
        assert device.busy == sum(map(schedule.instance.duration_of, operations))
